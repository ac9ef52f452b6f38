/* Fused CPU kernels of the Transformer's training step.
 *
 * Each kernel reads and writes a tensor once where torch would need several operators. Activations are fp32 or bf16
 * (`half`), and sums are fp32. The result of a kernel does not depend on the number of threads. `kernels.py` declares
 * these functions to Python; `fused.py` makes them differentiable.
 *
 * The file needs nothing but a C compiler with GNU extensions. OpenMP comes from the library that torch has loaded.
 */

#include "vectors.h"

#define VERSION 4 /* as in kernels.py; raise it when a function or a structure changes */
#define CHUNKS 16 /* of the rows of a tensor; their partial sums are added in order */

/* Defines lockstep_NAME from the always-inlined NAME, which computes the rows [begin, end) of one chunk. */
#define KERNEL(name, finish)                                                                                           \
    static void name##_float(const struct name *t, long begin, long end, long chunk) {                          \
        name(t, begin, end, chunk, 0);                                                                                 \
    }                                                                                                                  \
    static void name##_half(const struct name *t, long begin, long end, long chunk) {                           \
        name(t, begin, end, chunk, 1);                                                                                 \
    }                                                                                                                  \
    void lockstep_##name(const struct name *t, int half, int threads) {                                                \
        _Pragma("omp parallel for schedule(static) num_threads(threads) if (threads > 1)")                             \
        for (long chunk = 0; chunk < CHUNKS; chunk++)                                                                  \
            (half ? name##_half : name##_float)(                                                                       \
                t, t->rows * chunk / CHUNKS, t->rows * (chunk + 1) / CHUNKS, chunk);                                   \
        finish;                                                                                                        \
    }

int lockstep_kernels_version(void) { return VERSION; }

/* ---- dropout ---- */

/* Writes random bytes, at least `bytes` and a multiple of 8: splitmix64 of the seed and a counter, which is that of the
 * first 8 bytes. A value is dropped if its byte is below `dropped`. The backward pass draws the same bytes again. */
INLINE void draw(uint8_t *mask, uint64_t seed, uint64_t counter, long bytes) {
    for (long i = 0; i < (bytes + 7) / 8; i++) {
        uint64_t z = seed + (counter + i + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        memcpy(mask + 8 * i, &z, 8);
    }
}

/* Draws the bytes of a row of a tensor [rows, width]. */
INLINE void draw_row(uint8_t *mask, uint64_t seed, long row, long width) {
    draw(mask, seed, row * ((width + 7) / 8), width);
}

INLINE float scale_kept(long dropped) { return 256.0f / (256 - dropped); }

/* Returns `factor` where a value is kept, else 0. */
INLINE vector scale_mask(const uint8_t *mask, long dropped, float factor) {
    ints drawn = __builtin_convertvector(*(const bytes *)mask, ints);
    return choose(drawn >= (int32_t)dropped, (vector){0} + factor, (vector){0});
}

/* Adds the partial sums [CHUNKS, count] into the first of them. */
static void add_chunks(float *partial, long count) {
    for (long chunk = 1; chunk < CHUNKS; chunk++)
        for (long j = 0; j < count; j++) partial[j] += partial[chunk * count + j];
}

/* ---- embedding: x = dropout(factor * table[ids] + positions[places]) ---- */

struct embed {
    long rows, width;
    const int64_t *ids, *places; /* [rows] */
    const float *table;          /* [vocabulary, width] */
    const float *positions;      /* [longest, width] */
    float *x;                    /* [rows, width] */
    float factor;
    long dropped; /* of 256 */
    uint64_t seed;
    const float *x_grad; /* of the backward pass */
    float *table_grad;
};

INLINE void embed(const struct embed *t, long begin, long end, long chunk, const int half) {
    long width = t->width;
    int dropped = t->dropped;
    float keep = scale_kept(dropped);
    uint8_t *mask = malloc(width + 8);
    for (long i = begin; i < end; i++) {
        const float *word = t->table + t->ids[i] * width, *position = t->positions + t->places[i] * width;
        float *x = t->x + i * width;
        for (long j = 0; j < width; j++) x[j] = t->factor * word[j] + position[j];
        if (!dropped) continue;
        draw_row(mask, t->seed, i, width);
        for (long j = 0; j < width; j++) x[j] = mask[j] < dropped ? 0 : keep * x[j];
    }
    free(mask);
}

KERNEL(embed, )

/* Adds the gradient of x to that of the table. A chunk adds up the rows of its own ids, in the order of the batch. */
static void embed_backward(const struct embed *t, long chunk) {
    long width = t->width;
    int dropped = t->dropped;
    float keep = t->factor * scale_kept(dropped);
    uint8_t *mask = malloc(width + 8);
    for (long i = 0; i < t->rows; i++) {
        if (t->ids[i] % CHUNKS != chunk) continue;
        const float *x = t->x_grad + i * width;
        float *word = t->table_grad + t->ids[i] * width;
        if (dropped) {
            draw_row(mask, t->seed, i, width);
            for (long j = 0; j < width; j++) word[j] += mask[j] < dropped ? 0 : keep * x[j];
        } else
            for (long j = 0; j < width; j++) word[j] += t->factor * x[j];
    }
    free(mask);
}

void lockstep_embed_backward(const struct embed *t, int half, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (long chunk = 0; chunk < CHUNKS; chunk++) embed_backward(t, chunk);
}

/* ---- residual and norm: sum = x + dropout(y); h = norm(sum) ---- */

struct add_norm {
    long rows, width;
    const float *x;              /* [rows, width] */
    const void *y;               /* [rows, width], or NULL: sum = x */
    float *sum;                  /* [rows, width], or NULL where y is */
    void *h;                     /* [rows, width] */
    float *full;                 /* h in fp32, or NULL */
    float *mean, *scale;         /* [rows] mean and 1 / standard deviation, for the backward pass */
    const float *weight, *shift; /* [width] of the norm */
    float epsilon;
    long dropped;
    uint64_t seed;
};

INLINE void add_norm(const struct add_norm *t, long begin, long end, long chunk, const int half) {
    long width = t->width;
    int dropped = t->dropped;
    float keep = scale_kept(dropped), *restrict row = malloc(4 * width);
    uint8_t *mask = malloc(width + 8);
    for (long i = begin; i < end; i++) {
        const float *x = t->x + i * width;
        const void *y = t->y ? at(t->y, i * width, half) : 0;
        float total = 0, squares = 0;
        if (!y)
            memcpy(row, x, 4 * width);
        else if (dropped) {
            draw_row(mask, t->seed, i, width);
            for (long j = 0; j < width; j++) row[j] = x[j] + (mask[j] < dropped ? 0 : keep) * get(y, j, half);
        } else
            for (long j = 0; j < width; j++) row[j] = x[j] + get(y, j, half);
#pragma omp simd reduction(+ : total)
        for (long j = 0; j < width; j++) total += row[j];
        float mean = total / width;
#pragma omp simd reduction(+ : squares)
        for (long j = 0; j < width; j++) squares += (row[j] - mean) * (row[j] - mean);
        float scale = 1.0f / sqrtf(squares / width + t->epsilon);
        t->mean[i] = mean, t->scale[i] = scale;
        if (t->sum) memcpy(t->sum + i * width, row, 4 * width);
        void *h = at(t->h, i * width, half);
        for (long j = 0; j < width; j++) row[j] = (row[j] - mean) * scale * t->weight[j] + t->shift[j];
        for (long j = 0; j < width; j++) put(h, j, row[j], half);
        if (t->full) memcpy(t->full + i * width, row, 4 * width);
    }
    free(row), free(mask);
}

KERNEL(add_norm, )

struct add_norm_backward {
    long rows, width;
    const void *h_grad;     /* [rows, width], or NULL */
    const float *full_grad; /* of `full`, or NULL */
    const float *sum_grad;  /* of `sum`, from the residual connection, or NULL */
    const float *sum;       /* [rows, width] as the forward pass left them, like mean and scale */
    const float *mean, *scale;
    const float *weight;
    float *x_grad;      /* [rows, width] */
    void *y_grad;       /* [rows, width], or NULL */
    float *column_sums; /* [CHUNKS, 2, width]: gradients of weight and shift */
    long dropped;
    uint64_t seed;
};

INLINE void add_norm_backward(const struct add_norm_backward *t, long begin, long end, long chunk, const int half) {
    long width = t->width;
    int dropped = t->dropped;
    float keep = scale_kept(dropped), *restrict g = malloc(4 * width), *restrict normal = malloc(4 * width);
    float *restrict weight_grad = t->column_sums + 2 * chunk * width, *restrict shift_grad = weight_grad + width;
    uint8_t *mask = malloc(width + 8);
    memset(weight_grad, 0, 8 * width);
    for (long i = begin; i < end; i++) {
        const float *restrict row = t->sum + i * width, *restrict weight = t->weight;
        const void *h_grad = t->h_grad ? at(t->h_grad, i * width, half) : 0;
        const float *full_grad = t->full_grad ? t->full_grad + i * width : 0;
        float *restrict x_grad = t->x_grad + i * width;
        float mean = t->mean[i], scale = t->scale[i], total = 0, product = 0;
        if (h_grad && full_grad)
            for (long j = 0; j < width; j++) g[j] = get(h_grad, j, half) + full_grad[j];
        else if (h_grad)
            for (long j = 0; j < width; j++) g[j] = get(h_grad, j, half);
        else if (full_grad)
            memcpy(g, full_grad, 4 * width);
        else
            memset(g, 0, 4 * width);
        for (long j = 0; j < width; j++) {
            normal[j] = (row[j] - mean) * scale;
            weight_grad[j] += g[j] * normal[j];
            shift_grad[j] += g[j];
            g[j] *= weight[j];
        }
#pragma omp simd reduction(+ : total, product)
        for (long j = 0; j < width; j++) {
            total += g[j];
            product += g[j] * normal[j];
        }
        total /= width, product /= width;
        if (t->sum_grad) {
            const float *restrict sum_grad = t->sum_grad + i * width;
            for (long j = 0; j < width; j++)
                x_grad[j] = scale * (g[j] - total - normal[j] * product) + sum_grad[j];
        } else
            for (long j = 0; j < width; j++) x_grad[j] = scale * (g[j] - total - normal[j] * product);
        if (!t->y_grad) continue;
        void *y_grad = at(t->y_grad, i * width, half);
        if (dropped) {
            draw_row(mask, t->seed, i, width);
            for (long j = 0; j < width; j++) put(y_grad, j, (mask[j] < dropped ? 0 : keep) * x_grad[j], half);
        } else
            for (long j = 0; j < width; j++) put(y_grad, j, x_grad[j], half);
    }
    free(g), free(normal), free(mask);
}

KERNEL(add_norm_backward, add_chunks(t->column_sums, 2 * t->width))

/* ---- y = dropout(relu(y + bias)), in place ---- */

struct relu {
    long rows, width;
    void *y; /* [rows, width] */
    const float *bias;
    long dropped;
    uint64_t seed;
};

INLINE void relu(const struct relu *t, long begin, long end, long chunk, const int half) {
    long width = t->width;
    int dropped = t->dropped;
    float keep = scale_kept(dropped);
    uint8_t *mask = malloc(width + 8);
    for (long i = begin; i < end; i++) {
        void *y = at(t->y, i * width, half);
        if (dropped) {
            draw_row(mask, t->seed, i, width);
            for (long j = 0; j < width; j++) {
                float value = get(y, j, half) + t->bias[j];
                value = value < 0 ? 0 : keep * value;
                put(y, j, mask[j] < dropped ? 0 : value, half);
            }
        } else
            for (long j = 0; j < width; j++) {
                float value = get(y, j, half) + t->bias[j];
                put(y, j, value < 0 ? 0 : value, half);
            }
    }
    free(mask);
}

KERNEL(relu, )

/* Turns the gradient of the result into that of the input, in place: a value that is zero in the result gets none,
 * whether it was negative or dropped. */
struct relu_backward {
    long rows, width;
    void *grad;         /* [rows, width] */
    const void *result; /* [rows, width] */
    float *column_sums; /* [CHUNKS, width]: gradient of the bias */
    long dropped;
};

INLINE void relu_backward(const struct relu_backward *t, long begin, long end, long chunk, const int half) {
    long width = t->width;
    float keep = scale_kept(t->dropped), *restrict sums = t->column_sums + chunk * width;
    memset(sums, 0, 4 * width);
    for (long i = begin; i < end; i++) {
        void *grad = at(t->grad, i * width, half);
        const void *result = at(t->result, i * width, half);
        for (long j = 0; j < width; j++) {
            float value = get(result, j, half) > 0 ? keep * get(grad, j, half) : 0;
            put(grad, j, value, half);
            sums[j] += value;
        }
    }
}

KERNEL(relu_backward, add_chunks(t->column_sums, t->width))

/* ---- attention over packed sentences, one sentence and head at a time ---- */

#define UP(n, unit) (((n) + (unit) - 1) / (unit) * (unit))

INLINE void multiply_tile(float *c, long ldc, const float *a, long lda, long step, const float *b, long ldb, long depth,
                          const int rows, const int vectors) {
    vector sums[8][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = (vector){0};
    for (long d = 0; d < depth; d++) {
        vector row[4];
        for (int v = 0; v < vectors; v++) row[v] = read_lanes(b + d * ldb + WIDE * v);
        for (int r = 0; r < rows; r++) {
            float factor = a[r * lda + d * step];
            for (int v = 0; v < vectors; v++) sums[r][v] += factor * row[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) write_lanes(c + r * ldc + WIDE * v, sums[r][v]);
}

/* c[rows, columns] = a[rows, depth] b[depth, columns]. The value (r, d) of a is at r * lda + d * step, so a may be
 * transposed. Rows are a multiple of 4, columns of 16. A tile has at least 8 vectors of sums where there are enough rows,
 * because an addition must wait for the one before it, and no more than there are registers for. */
INLINE void multiply(float *c, long ldc, const float *a, long lda, long step, const float *b, long ldb, long rows,
                     long depth, long columns) {
    for (long j = 0; j < columns;) {
        int vectors = WIDE == 16 && columns - j >= 64 ? 4 : columns - j >= 2 * WIDE ? 2 : 1;
        for (long i = 0; i < rows;) {
            float *to = c + i * ldc + j;
            const float *from = a + i * lda;
            int tall = vectors == 1 && rows - i >= 8 ? 8 : 4;
            if (vectors == 4)
                multiply_tile(to, ldc, from, lda, step, b + j, ldb, depth, 4, 4);
            else if (vectors == 2)
                multiply_tile(to, ldc, from, lda, step, b + j, ldb, depth, 4, 2);
            else if (tall == 8)
                multiply_tile(to, ldc, from, lda, step, b + j, ldb, depth, 8, 1);
            else
                multiply_tile(to, ldc, from, lda, step, b + j, ldb, depth, 4, 1);
            i += tall;
        }
        j += vectors * WIDE;
    }
}

/* Where one sentence and head is in the tensors. Its values are copied to fp32 and padded with zeros: queries to a
 * multiple of 4, keys and the size of a head to a multiple of 16. */
struct place {
    long first, n, rows;           /* queries */
    long first_key, keys, columns; /* keys */
    long size, padded, head;
    long weights; /* where the weights of its first query begin */
};

struct attention {
    long sentences, heads, size;   /* size of a head */
    const int32_t *queries, *keys; /* [sentences + 1] where each sentence begins */
    const int64_t *places;         /* [sentences + 1] where its weights begin, for one head */
    const void *q, *k, *v;         /* packed words, and the distance between two of them */
    long q_stride, k_stride, v_stride;
    void *out;      /* [words, heads * size] */
    float *weights; /* softmax of the scores, before dropout */
    long causal, dropped;
    uint64_t seed;
    const void *out_grad;           /* of the backward pass */
    void *q_grad, *k_grad, *v_grad; /* with the strides of q, k and v */
    float *scratch;                 /* [threads, scratch_size] */
    long scratch_size;
};

INLINE struct place find_place(const struct attention *t, long sentence, long head) {
    struct place p = {.size = t->size, .padded = UP(t->size, 16), .head = head * t->size};
    p.first = t->queries[sentence], p.n = t->queries[sentence + 1] - p.first, p.rows = UP(p.n, 4);
    p.first_key = t->keys[sentence], p.keys = t->keys[sentence + 1] - p.first_key, p.columns = UP(p.keys, 16);
    p.weights = t->places[sentence] * t->heads + head * p.n * p.columns;
    return p;
}

/* Asks for one head of n rows of packed words, which are needed soon. */
INLINE void prefetch(const void *words, long stride, long first, long n, const struct place *p, const int half) {
    for (long i = 0; i < n; i++) {
        const char *row = at(words, (first + i) * stride + p->head, half);
        for (long j = 0; j < p->size * (half ? 2 : 4); j += 64) __builtin_prefetch(row + j);
    }
}

/* Asks for what the next sentence reads, because its rows are too far apart for the hardware to foresee them. */
INLINE void prefetch_next(const struct attention *t, long sentence, long head, const int half) {
    if (sentence + 1 == t->sentences) return;
    struct place p = find_place(t, sentence + 1, head);
    prefetch(t->q, t->q_stride, p.first, p.n, &p, half);
    prefetch(t->k, t->k_stride, p.first_key, p.keys, &p, half);
    prefetch(t->v, t->v_stride, p.first_key, p.keys, &p, half);
    if (t->out_grad) prefetch(t->out_grad, t->heads * p.size, p.first, p.n, &p, half);
}

/* Copies n rows of packed words to fp32 [rows, padded], times `factor`; the rest is zero. */
INLINE void load(float *to, const void *words, long stride, long first, long n, long rows, const struct place *p,
                 float factor, const int half) {
    for (long i = 0; i < n; i++) {
        const void *row = at(words, (first + i) * stride + p->head, half);
        for (long j = 0; j < p->size; j++) to[i * p->padded + j] = factor * get(row, j, half);
        for (long j = p->size; j < p->padded; j++) to[i * p->padded + j] = 0;
    }
    memset(to + n * p->padded, 0, 4 * (rows - n) * p->padded);
}

INLINE void store(void *words, const float *from, long stride, long first, long n, const struct place *p, float factor,
                  const int half) {
    for (long i = 0; i < n; i++) {
        void *row = at(words, (first + i) * stride + p->head, half);
        for (long j = 0; j < p->size; j++) put(row, j, factor * from[i * p->padded + j], half);
    }
}

/* Exchanges the blocks of n x n values beside the diagonal of WIDE rows. */
#define EXCHANGE(rows, n)                                                                                              \
    for (int i = 0; i < WIDE; i++)                                                                                     \
        if (!(i & n)) {                                                                                                \
            vector low = rows[i], high = rows[i + n];                                                                  \
            rows[i] = __builtin_shuffle(low, high, LANES + ((LANES & n) != 0) * -(WIDE - n));                          \
            rows[i + n] = __builtin_shuffle(low, high, LANES + n + ((LANES & n) != 0) * -(WIDE - n));                  \
        }

INLINE void transpose(float *to, const float *from, long rows, long columns) { /* to [columns, rows], multiples of 16 */
    for (long i = 0; i < rows; i += WIDE)
        for (long j = 0; j < columns; j += WIDE) {
            vector block[WIDE];
            for (int k = 0; k < WIDE; k++) block[k] = read_lanes(from + (i + k) * columns + j);
#if WIDE > 8
            EXCHANGE(block, 8)
#endif
#if WIDE > 4
            EXCHANGE(block, 4)
#endif
            EXCHANGE(block, 2)
            EXCHANGE(block, 1)
            for (int k = 0; k < WIDE; k++) write_lanes(to + (j + k) * rows + i, block[k]);
        }
}

INLINE void attend(const struct attention *t, long sentence, long head, float *scratch, const int half) {
    struct place p = find_place(t, sentence, head);
    long columns = p.columns, padded = p.padded;
    float *weights = t->weights + p.weights, keep = scale_kept(t->dropped);
    float *q = scratch, *k = q + p.rows * padded, *turned = k + columns * padded, *s = turned + columns * padded;
    float *out = s + p.rows * columns;
    uint8_t *mask = (uint8_t *)(out + p.rows * padded);
    prefetch_next(t, sentence, head, half);
    load(q, t->q, t->q_stride, p.first, p.n, p.rows, &p, 1.0f / sqrtf(p.size), half);
    load(k, t->k, t->k_stride, p.first_key, p.keys, columns, &p, 1, half);
    transpose(turned, k, columns, padded);
    multiply(s, columns, q, padded, 1, turned, columns, p.rows, p.size, columns); /* scores */
    load(k, t->v, t->v_stride, p.first_key, p.keys, columns, &p, 1, half);
    if (t->dropped) draw(mask, t->seed, p.weights / 8, p.n * columns);
    for (long i = 0; i < p.n; i++) {
        float *row = s + i * columns, *saved = weights + i * columns;
        int32_t seen = t->causal ? i + 1 : p.keys;
        vector highest = (vector){0} - INFINITY, total = {0};
        for (long j = 0; j < columns; j += WIDE)
            highest = larger(highest, choose(LANES + (int32_t)j < seen, read_lanes(row + j), (vector){0} - INFINITY));
        float top = find_largest_lane(highest);
        for (long j = 0; j < columns; j += WIDE) {
            vector x = choose(LANES + (int32_t)j < seen, exponential(read_lanes(row + j) - top), (vector){0});
            total += x;
            write_lanes(row + j, x);
        }
        float factor = 1 / add_lanes(total);
        for (long j = 0; j < columns; j += WIDE) {
            vector x = read_lanes(row + j) * factor;
            write_lanes(saved + j, x);
            if (t->dropped) x *= scale_mask(mask + i * columns + j, t->dropped, keep);
            write_lanes(row + j, x);
        }
    }
    multiply(out, padded, s, columns, 1, k, padded, p.rows, p.keys, padded);
    store(t->out, out, t->heads * p.size, p.first, p.n, &p, 1, half);
}

INLINE void attend_backward(const struct attention *t, long sentence, long head, float *scratch, const int half) {
    struct place p = find_place(t, sentence, head);
    long columns = p.columns, padded = p.padded, width = t->heads * p.size;
    const float *weights = t->weights + p.weights;
    float keep = scale_kept(t->dropped), factor = 1.0f / sqrtf(p.size);
    float *q = scratch, *k = q + p.rows * padded, *turned = k + columns * padded, *s = turned + columns * padded;
    float *d = s + p.rows * columns, *g = d + p.rows * columns, *out = g + p.rows * padded;
    uint8_t *mask = (uint8_t *)(out + (p.rows > columns ? p.rows : columns) * padded);
    prefetch_next(t, sentence, head, half);
    load(g, t->out_grad, width, p.first, p.n, p.rows, &p, 1, half);
    load(k, t->v, t->v_stride, p.first_key, p.keys, columns, &p, 1, half);
    transpose(turned, k, columns, padded);
    multiply(d, columns, g, padded, 1, turned, columns, p.rows, p.size, columns); /* gradient of the dropped weights */
    if (t->dropped) draw(mask, t->seed, p.weights / 8, p.n * columns);
    for (long i = 0; i < p.n; i++) { /* s becomes the dropped weights, d the gradient of the scores */
        float *dropped = s + i * columns, *grad = d + i * columns;
        const float *saved = weights + i * columns;
        vector total = {0};
        for (long j = 0; j < columns; j += WIDE) {
            vector kept = (vector){0} + 1;
            if (t->dropped) kept = scale_mask(mask + i * columns + j, t->dropped, keep);
            vector weight = read_lanes(saved + j), gradient = kept * read_lanes(grad + j);
            write_lanes(dropped + j, kept * weight);
            write_lanes(grad + j, gradient);
            total += gradient * weight;
        }
        float sum = add_lanes(total);
        for (long j = 0; j < columns; j += WIDE) write_lanes(grad + j, read_lanes(saved + j) * (read_lanes(grad + j) - sum));
    }
    multiply(out, padded, s, 1, columns, g, padded, columns, p.n, padded);
    store(t->v_grad, out, t->v_stride, p.first_key, p.keys, &p, 1, half);
    load(k, t->k, t->k_stride, p.first_key, p.keys, columns, &p, 1, half);
    multiply(out, padded, d, columns, 1, k, padded, p.rows, p.keys, padded);
    store(t->q_grad, out, t->q_stride, p.first, p.n, &p, factor, half);
    load(q, t->q, t->q_stride, p.first, p.n, p.rows, &p, factor, half);
    multiply(out, padded, d, 1, columns, q, padded, columns, p.n, padded);
    store(t->k_grad, out, t->k_stride, p.first_key, p.keys, &p, 1, half);
}

typedef void (*attend_one)(const struct attention *, long, long, float *);
#define VERSIONS(name)                                                                                                 \
    static void name##_float(const struct attention *t, long sentence, long head, float *scratch) {             \
        name(t, sentence, head, scratch, 0);                                                                           \
    }                                                                                                                  \
    static void name##_half(const struct attention *t, long sentence, long head, float *scratch) {              \
        name(t, sentence, head, scratch, 1);                                                                           \
    }
VERSIONS(attend)
VERSIONS(attend_backward)

static void attend_all(const struct attention *t, attend_one one, int threads) {
    int some = 4 * t->heads; /* of a few sentences */
#pragma omp parallel for schedule(dynamic, some) num_threads(threads) if (threads > 1)
    for (long i = 0; i < t->sentences * t->heads; i++)
        one(t, i / t->heads, i % t->heads, t->scratch + omp_get_thread_num() * t->scratch_size);
}

void lockstep_attend(const struct attention *t, int half, int threads) {
    attend_all(t, half ? attend_half : attend_float, threads);
}

void lockstep_attend_backward(const struct attention *t, int half, int threads) {
    attend_all(t, half ? attend_backward_half : attend_backward_float, threads);
}

/* ---- cross-entropy with label smoothing: logits become their gradient, in place ---- */

struct cross_entropy {
    long rows, vocabulary;
    void *logits;          /* [rows, vocabulary] */
    const int64_t *labels; /* [rows] */
    double *losses;        /* [rows] */
    float smoothing;
};

INLINE void cross_entropy(const struct cross_entropy *t, long begin, long end, long chunk, const int half) {
    long vocabulary = t->vocabulary, padded = UP(vocabulary, 16);
    float *restrict row = malloc(4 * padded), share = t->smoothing / vocabulary, rest = 1 - t->smoothing;
    for (long i = begin; i < end; i++) {
        void *logits = at(t->logits, i * vocabulary, half);
        float sum = 0, known = get(logits, t->labels[i], half);
        vector highest = (vector){0} - INFINITY, total = {0};
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < vocabulary; j++) sum += row[j] = get(logits, j, half);
        for (long j = vocabulary; j < padded; j++) row[j] = -INFINITY;
        for (long j = 0; j < padded; j += WIDE) highest = larger(highest, read_lanes(row + j));
        float top = find_largest_lane(highest);
        for (long j = 0; j < padded; j += WIDE) {
            vector x = exponential(read_lanes(row + j) - top); /* the last lanes add nothing that fp32 could hold */
            total += x;
            write_lanes(row + j, x);
        }
        float all = add_lanes(total), factor = 1 / all;
        for (long j = 0; j < vocabulary; j++) put(logits, j, row[j] * factor - share, half);
        put(logits, t->labels[i], row[t->labels[i]] * factor - share - rest, half);
        /* `sum` is not finite if a logit is not, and neither is the loss then */
        t->losses[i] = top + log(all) - (double)rest * known - (double)share * sum + 0 * (double)sum;
    }
    free(row);
}

KERNEL(cross_entropy, )
