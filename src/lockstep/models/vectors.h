/* Vectors of floats and 16-bit numbers, for the CPU kernels. */

#ifndef LOCKSTEP_VECTORS_H
#define LOCKSTEP_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(__AVX512F__) /* WIDE: floats in a vector register */
#define WIDE 16
#define LANES ((ints){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#elif defined(__AVX2__)
#define WIDE 8
#define LANES ((ints){0, 1, 2, 3, 4, 5, 6, 7})
#else
#define WIDE 4
#define LANES ((ints){0, 1, 2, 3})
#endif

typedef float vector __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * WIDE), aligned(4), may_alias)); /* masks and bits of a vector */
typedef uint8_t bytes __attribute__((vector_size(WIDE), aligned(1), may_alias));

/* ---- numbers ---- */

INLINE float widen(uint16_t value) {
    union {
        uint32_t bits;
        float number;
    } u = {(uint32_t)value << 16};
    return u.number;
}

INLINE uint16_t narrow(float value) { /* rounds to nearest, ties to even; NaN stays NaN */
    union {
        float number;
        uint32_t bits;
    } u = {value};
    uint32_t rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
    return (u.bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded;
}

INLINE float get(const void *values, long i, const int half) {
    return half ? widen(((const uint16_t *)values)[i]) : ((const float *)values)[i];
}

INLINE void put(void *values, long i, float value, const int half) {
    if (half)
        ((uint16_t *)values)[i] = narrow(value);
    else
        ((float *)values)[i] = value;
}

INLINE void *at(const void *values, long i, const int half) { return (char *)values + i * (half ? 2 : 4); }

INLINE vector read_lanes(const float *values) { return *(const vector *)values; }
INLINE void write_lanes(float *values, vector x) { *(vector *)values = x; }
INLINE vector choose(ints mask, vector yes, vector no) { return (vector)((mask & (ints)yes) | (~mask & (ints)no)); }
INLINE vector larger(vector a, vector b) { return choose(a > b, a, b); }

#define SWAPPED(a, distance) __builtin_shuffle(a, LANES ^ distance) /* lanes that are so far apart change places */

INLINE float add_lanes(vector a) {
    if (WIDE > 8) a += SWAPPED(a, 8);
    if (WIDE > 4) a += SWAPPED(a, 4);
    a += SWAPPED(a, 2), a += SWAPPED(a, 1);
    return a[0];
}

INLINE float find_largest_lane(vector a) {
    if (WIDE > 8) a = larger(a, SWAPPED(a, 8));
    if (WIDE > 4) a = larger(a, SWAPPED(a, 4));
    a = larger(a, SWAPPED(a, 2)), a = larger(a, SWAPPED(a, 1));
    return a[0];
}

INLINE vector exponential(vector x) { /* exp(x) for x <= 0, with a relative error of 2e-7; NaN stays NaN */
    x = choose(x < -87.0f, (vector){0} - 87.0f, x);
    vector n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounds to an integer */
    vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vector)((__builtin_convertvector(n, ints) + 127) << 23);
}

#endif
