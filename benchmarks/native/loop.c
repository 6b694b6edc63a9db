/* The rounds of linear regression over the digital and the analog uplink in plain C: a yardstick of
   what this machine can do, not a limit, and no part of the package.

   A block is LANES experiments, one in each lane of a vector. A position is the deviation from the
   posterior mean; gradients are in units of the clip. The data of a device are DIM constant parts
   and the lower triangle of its Hessian, row by row, each LANES floats.

   gcc -O3 -march=native -fopenmp -shared -fPIC -DDIM=5 -DTERMS=5 loop.c -o loop.so */

#include <immintrin.h>
#include <stdint.h>

#ifndef DIM
#define DIM 5
#endif
#ifndef TERMS
#define TERMS 5 /* coefficients of the odd polynomial */
#endif
#define LANES 8
#define PRODUCTS (DIM * (DIM + 1) / 2)
#define INLINE static inline __attribute__((always_inline))

typedef float reals __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t wholes __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

INLINE reals all(float value) { return (reals){0} + value; }
INLINE reals as_reals(words bits) { return __builtin_convertvector((wholes)bits, reals); }
INLINE reals load(const float *from, long index) { return *(const loose *)(from + LANES * index); }
INLINE void store(float *to, long index, reals value) { *(loose *)(to + LANES * index) = value; }
/* Where entry (row, column) of a symmetric matrix is in its lower triangle. */
INLINE int place(int row, int column) {
  return row >= column ? row * (row + 1) / 2 + column : column * (column + 1) / 2 + row;
}

/* xoshiro128++ in every lane. */
typedef struct {
  words a, b, c, d;
} generator;

INLINE words turned(words x, int by) { return x << by | x >> (32 - by); }

INLINE words draw(generator *from) {
  const words drawn = turned(from->a + from->d, 7) + from->a, shifted = from->b << 9;
  from->c ^= from->a;
  from->d ^= from->b;
  from->b ^= from->c;
  from->a ^= from->d;
  from->c ^= shifted;
  from->d = turned(from->d, 11);
  return drawn;
}

/* A generator for each lane: consecutive numbers, mixed by the finaliser of MurmurHash3. */
INLINE generator seeded(uint32_t seed, uint32_t block) {
  words parts[4];
  for (int part = 0; part < 4; part++)
    for (int lane = 0; lane < LANES; lane++) {
      uint32_t x = seed * 0x9e3779b9u + (block * LANES + lane) * 4u + part + 1u;
      x = (x ^ x >> 16) * 0x85ebca6bu;
      x = (x ^ x >> 13) * 0xc2b2ae35u;
      parts[part][lane] = x ^ x >> 16;
    }
  generator made = {parts[0], parts[1], parts[2], parts[3]};
  for (int i = 0; i < 16; i++) draw(&made);
  return made;
}

/* Natural logarithm of positive normal numbers: exponent, and a polynomial in the mantissa less 1,
   which lies between 1/sqrt(2) and sqrt(2). */
INLINE reals logarithm(reals x) {
  const words bits = (words)x - 0x3f3504f3u;
  const reals exponent = __builtin_convertvector((wholes)bits >> 23, reals);
  const reals t = (reals)((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  reals p = t * 0.0874394536f - 0.143773306f;
  p = p * t + 0.149490955f;
  p = p * t - 0.16560696f;
  p = p * t + 0.199569775f;
  p = p * t - 0.250021535f;
  p = p * t + 0.333341833f;
  p = p * t - 0.49999987f;
  p = p * t + 0.999999974f;
  return exponent * 0.693147181f + p * t;
}

/* Two standard normals (Box and Muller). Sine and cosine are those of half the angle, which need
   no quadrants, doubled. */
INLINE void draw_normals(generator *from, reals *first, reals *second) {
  /* 24 bits and a half, so that the logarithm never sees 0. */
  const reals uniform = (as_reals(draw(from) >> 8) + 0.5f) * 0x1p-24f;
  const reals radius = _mm256_sqrt_ps(logarithm(uniform) * -2.0f);
  const reals turn = as_reals(draw(from)) * 0x1p-31f, square = turn * turn;
  reals sine = square * 0.000151675118f - 0.00467415067f;
  sine = sine * square + 0.0796899226f;
  sine = sine * square - 0.64596376f;
  sine = (sine * square + 1.57079632f) * turn;
  reals cosine = square * -2.38245357e-05f + 0.000917723883f;
  cosine = cosine * square - 0.0208626875f;
  cosine = cosine * square + 0.253669322f;
  cosine = cosine * square - 1.23370053f;
  cosine = cosine * square + 1.0f;
  *first = radius * (1.0f - 2.0f * sine * sine);
  *second = radius * (2.0f * sine * cosine);
}

/* The sum of all devices' symbols, of every entry; counts clipped entries if asked. */
INLINE void add_symbols(const int digital, const int counting, const float *device, long devices,
                        const reals *position, const reals *terms, generator *from, reals *sums,
                        wholes *clipped) {
  const reals one = all(1.0f);
  wholes ones[DIM];
  for (int i = 0; i < DIM; i++) sums[i] = all(0.0f), ones[i] = (wholes){0};
  for (long k = 0; k < devices; k++, device += LANES * (DIM + PRODUCTS)) {
#pragma GCC unroll 64
    for (int i = 0; i < DIM; i++) {
      reals gradient = -load(device, i);
#pragma GCC unroll 64
      for (int j = 0; j < DIM; j++) gradient += load(device, DIM + place(i, j)) * position[j];
      const reals bounded = _mm256_max_ps(_mm256_min_ps(gradient, one), -one);
      if (counting) *clipped -= bounded != gradient;
      if (digital) {
        const reals square = bounded * bounded;
        reals threshold = terms[0];
#pragma GCC unroll 64
        for (int t = 1; t < TERMS; t++) threshold = threshold * square + terms[t];
        ones[i] -= as_reals(draw(from)) < threshold * bounded;
      } else {
        sums[i] += bounded;
      }
    }
  }
  if (digital)
    for (int i = 0; i < DIM; i++)
      sums[i] = __builtin_convertvector(ones[i], reals) * 2.0f - (float)devices;
}

/* One block of experiments through all rounds; the number of clipped entries is returned. */
INLINE long run_block(const int digital, const float *data, long devices, long rounds,
                      long burn_in, const float *pull, const float *noise, const float *curve,
                      const float *start, float spread, generator from, float *sums,
                      float *products) {
  reals position[DIM], normals[2][DIM], terms[TERMS], total[DIM], squares[PRODUCTS], symbols[DIM];
  wholes clipped = {0};
  for (int t = 0; t < TERMS; t++) terms[t] = all(curve[t]);
  for (int i = 0; i < DIM; i++) draw_normals(&from, &normals[0][i], &normals[1][i]);
  for (int i = 0; i < DIM; i++)
    position[i] = load(start, i) + spread * normals[0][i], total[i] = all(0.0f);
  for (int p = 0; p < PRODUCTS; p++) squares[p] = all(0.0f);
  for (long r = 0; r < rounds; r++) {
    /* A pair of normals serves two rounds. */
    if (r % 2 == 0)
      for (int i = 0; i < DIM; i++) draw_normals(&from, &normals[0][i], &normals[1][i]);
    if (r < burn_in)
      add_symbols(digital, 0, data, devices, position, terms, &from, symbols, &clipped);
    else
      add_symbols(digital, 1, data, devices, position, terms, &from, symbols, &clipped);
    for (int i = 0; i < DIM; i++)
      position[i] -= pull[r] * symbols[i] + noise[r] * normals[r % 2][i];
    if (r >= burn_in)
      for (int i = 0; i < DIM; i++) {
        total[i] += position[i];
        for (int j = 0; j <= i; j++) squares[place(i, j)] += position[i] * position[j];
      }
  }
  for (int i = 0; i < DIM; i++) store(sums, i, total[i]);
  for (int p = 0; p < PRODUCTS; p++) store(products, p, squares[p]);
  long count = 0;
  for (int lane = 0; lane < LANES; lane++) count += clipped[lane];
  return count;
}

/* All blocks, dealt to threads.

   data      (block, device, DIM + PRODUCTS, LANES)
   pull      factor of the sum of symbols in every round; noise that of the normals
   curve     2^31 times the mean bit, as coefficients of an odd polynomial, highest first
   start     mean of the first positions, (block, DIM, LANES); spread their standard deviation
   sums      of positions over kept rounds, (block, DIM, LANES)
   products  of two entries of them, (block, PRODUCTS, LANES)

   Returns the number of clipped entries in kept rounds. */
long run_rounds(int digital, const float *data, long blocks, long devices, long rounds,
                long burn_in, const float *pull, const float *noise, const float *curve,
                const float *start, float spread, uint32_t seed, float *sums, float *products) {
  long clipped = 0;
#pragma omp parallel for schedule(static) reduction(+ : clipped)
  for (long b = 0; b < blocks; b++) {
    const float *own = data + b * devices * LANES * (DIM + PRODUCTS);
    const float *first = start + b * LANES * DIM;
    float *sum = sums + b * LANES * DIM, *product = products + b * LANES * PRODUCTS;
    generator from = seeded(seed, (uint32_t)b);
    if (digital)
      clipped += run_block(1, own, devices, rounds, burn_in, pull, noise, curve, first, spread,
                           from, sum, product);
    else
      clipped += run_block(0, own, devices, rounds, burn_in, pull, noise, curve, first, spread,
                           from, sum, product);
  }
  return clipped;
}
