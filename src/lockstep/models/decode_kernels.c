/* CPU kernels of beam search: attention to cached words, and the best continuations of all hypotheses.
 *
 * Nothing is copied when hypotheses are reordered. The keys and values of the words of one position stay where they were
 * computed, and a table says which of their rows belongs to which hypothesis. `decoding.py` calls these functions.
 */

#include "vectors.h"

/* ---- attention of one query per hypothesis ---- */

struct decode_attention {
    long hypotheses, heads, size;
    const float *q; /* [hypotheses, q_stride] the queries are its first heads * size columns */
    long q_stride;
    float *out; /* [hypotheses, heads * size] */
    long length; /* the most keys of a hypothesis */
    /* Words so far, or NULL: a block for each position, with rows of keys and values, heads * size columns each. */
    const float *const *words; /* [length] */
    const int32_t *origins;    /* [length, hypotheses] the row of each hypothesis in the block of a position */
    long word_stride;
    /* Source words: keys and values of all sentences, end to end. Used if there are no words so far. */
    const float *source; /* [source words, 2 * heads * size] */
    const int64_t *begins, *lengths; /* [sentences] */
    long beam;                       /* hypotheses of a sentence */
};

/* Attends to `count` keys. A key is followed by its value. `weights` has room for `heads` rows of `room` floats. */
INLINE void attend_keys(float *out, const float *q, const float **keys, long count, long heads, long size, float *weights,
                        long room) {
    long width = heads * size;
    float factor = 1.0f / sqrtf(size);
    for (long k = 0; k < count; k++)
        for (long h = 0; h < heads; h++) {
            const float *a = q + h * size, *b = keys[k] + h * size;
            float product = 0;
#pragma omp simd reduction(+ : product)
            for (long j = 0; j < size; j++) product += a[j] * b[j];
            weights[h * room + k] = product * factor;
        }
    for (long h = 0; h < heads; h++) {
        float *row = weights + h * room;
        vector highest = (vector){0} - INFINITY, total = {0};
        for (long k = count; k < room; k++) row[k] = -INFINITY;
        for (long k = 0; k < room; k += WIDE) highest = larger(highest, read_lanes(row + k));
        float top = find_largest_lane(highest);
        for (long k = 0; k < room; k += WIDE) {
            vector x = choose(LANES + (int32_t)k < (int32_t)count, exponential(read_lanes(row + k) - top), (vector){0});
            total += x;
            write_lanes(row + k, x);
        }
        float sum = 1 / add_lanes(total);
        for (long k = 0; k < room; k += WIDE) write_lanes(row + k, read_lanes(row + k) * sum);
    }
    memset(out, 0, 4 * width);
    for (long k = 0; k < count; k++)
        for (long h = 0; h < heads; h++) {
            const float *value = keys[k] + width + h * size;
            float *to = out + h * size, weight = weights[h * room + k];
#pragma omp simd
            for (long j = 0; j < size; j++) to[j] += weight * value[j];
        }
}

void lockstep_decode_attention(const struct decode_attention *t, int half, int threads) {
    long width = t->heads * t->size, room = (t->length + WIDE - 1) / WIDE * WIDE;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const float **keys = malloc(sizeof(float *) * t->length);
        float *weights = malloc(4 * t->heads * room);
#pragma omp for schedule(static)
        for (long i = 0; i < t->hypotheses; i++) {
            long count = t->length;
            if (t->words)
                for (long k = 0; k < count; k++)
                    keys[k] = t->words[k] + t->origins[k * t->hypotheses + i] * t->word_stride;
            else {
                count = t->lengths[i / t->beam];
                const float *first = t->source + t->begins[i / t->beam] * 2 * width;
                for (long k = 0; k < count; k++) keys[k] = first + k * 2 * width;
            }
            long used = (count + WIDE - 1) / WIDE * WIDE;
            attend_keys(t->out + i * width, t->q + i * t->q_stride, keys, count, t->heads, t->size, weights, used);
        }
        free(keys), free(weights);
    }
}

/* ---- the best continuations of the hypotheses of each sentence ---- */

struct best_words {
    long sentences, beam, vocabulary, count;
    const void *logits; /* [sentences, beam, stride]; the first `vocabulary` of a row count */
    long stride;
    const float *scores; /* [sentences, beam] of the hypotheses; -INFINITY: it has no continuation */
    float *best_scores;  /* [sentences, count] the highest first */
    int64_t *best;       /* [sentences, count] hypothesis * vocabulary + word; the lower one first where scores are equal */
};

/* Returns log(sum(exp(row))), where the row has `padded` values, the last of them -INFINITY. */
INLINE float sum_exponentials(const float *row, long padded) {
    vector highest = (vector){0} - INFINITY, total = {0};
    for (long j = 0; j < padded; j += WIDE) highest = larger(highest, read_lanes(row + j));
    float top = find_largest_lane(highest);
    for (long j = 0; j < padded; j += WIDE) total += exponential(read_lanes(row + j) - top);
    return top + logf(add_lanes(total));
}

/* Inserts a continuation into the sorted list of the best ones, if it is better than the last of them. */
INLINE void insert(float *scores, int64_t *places, long count, float score, int64_t place) {
    if (!(score > scores[count - 1])) return;
    long i = count - 1;
    for (; i > 0 && score > scores[i - 1]; i--) scores[i] = scores[i - 1], places[i] = places[i - 1];
    scores[i] = score, places[i] = place;
}

INLINE void find_best_words(const struct best_words *t, long sentence, float *row, const int half) {
    long count = t->count, vocabulary = t->vocabulary, padded = (vocabulary + WIDE - 1) / WIDE * WIDE;
    float *scores = t->best_scores + sentence * count;
    int64_t *places = t->best + sentence * count;
    for (long i = 0; i < count; i++) scores[i] = -INFINITY, places[i] = i;
    for (long b = 0; b < t->beam; b++) {
        float score = t->scores[sentence * t->beam + b];
        if (score == -INFINITY) continue;
        const void *logits = at(t->logits, (sentence * t->beam + b) * t->stride, half);
        for (long j = 0; j < vocabulary; j++) row[j] = get(logits, j, half);
        for (long j = vocabulary; j < padded; j++) row[j] = -INFINITY;
        float shift = score - sum_exponentials(row, padded);
        for (long j = 0; j < padded; j += WIDE) {
            vector x = read_lanes(row + j) + shift;
            if (!(find_largest_lane(x) > scores[count - 1])) continue;
            for (long k = 0; k < WIDE && j + k < vocabulary; k++)
                insert(scores, places, count, x[k], b * vocabulary + j + k);
        }
    }
}

static void find_best_words_float(const struct best_words *t, long sentence, float *row) {
    find_best_words(t, sentence, row, 0);
}
static void find_best_words_half(const struct best_words *t, long sentence, float *row) {
    find_best_words(t, sentence, row, 1);
}

void lockstep_best_words(const struct best_words *t, int half, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *row = malloc(4 * (t->vocabulary + WIDE));
#pragma omp for schedule(static)
        for (long sentence = 0; sentence < t->sentences; sentence++)
            (half ? find_best_words_half : find_best_words_float)(t, sentence, row);
        free(row);
    }
}
