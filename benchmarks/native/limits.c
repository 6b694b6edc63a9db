/* What the machine can do at most: fused multiplications and additions in single precision, and a
   streaming read of memory. */

#include <stddef.h>

#define CHAINS 12 /* independent chains hide the latency of an FMA, and fit into 16 registers */
#ifdef __AVX512F__
#define WIDE 16
#else
#define WIDE 8
#endif

#define MULTIPLY(name, lanes)                                                                      \
  typedef float name##_vector __attribute__((vector_size(4 * lanes)));                             \
  float name(long steps, float factor) {                                                           \
    name##_vector chain[CHAINS], times = (name##_vector){0} + factor;                              \
    for (int c = 0; c < CHAINS; c++) chain[c] = (name##_vector){0} + (float)c;                     \
    for (long s = 0; s < steps; s++)                                                               \
      _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++)                                   \
        chain[c] = chain[c] * times + times;                                                       \
    float sum = 0;                                                                                 \
    for (int c = 0; c < CHAINS; c++)                                                               \
      for (int l = 0; l < lanes; l++) sum += chain[c][l];                                          \
    return sum;                                                                                    \
  }

/* `steps` times CHAINS vectors of 8 floats; the sum is returned so that nothing is left out. */
MULTIPLY(multiply_8, 8)
/* The same with the widest vectors of the machine. */
MULTIPLY(multiply_widest, WIDE)

int widest(void) { return WIDE; }
int chains(void) { return CHAINS; }

/* The sum of an array, read once by all threads or by one. */
float read_all(const float *values, size_t count, int threads) {
  typedef float eight __attribute__((vector_size(32), aligned(4)));
  float sum = 0;
  const size_t step = 32, last = count / step * step;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
  for (size_t first = 0; first < last; first += step << 12) {
    const size_t end = first + (step << 12) < last ? first + (step << 12) : last;
    eight a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = first; i < end; i += step) {
      a += *(const eight *)(values + i);
      b += *(const eight *)(values + i + 8);
      c += *(const eight *)(values + i + 16);
      d += *(const eight *)(values + i + 24);
    }
    a += b + c + d;
    for (int l = 0; l < 8; l++) sum += a[l];
  }
  return sum;
}
