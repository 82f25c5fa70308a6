/* Euler equations on n x n periodic cells of the unit square, float32: WENO-Z of fifth order by interpolation, HLLC with
   its correction of sixth order, and three stages of Shu and Osher, the arithmetic of the library without any framework.
   Arrays hold density, both velocities or momenta, and pressure or energy, n x n each. Every inner loop runs along a row,
   so that the compiler vectorises it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAMMA 1.4f
#define HALO 3

static inline float square(float x) { return x * x; }

/* The value at the right face of the middle of five cells. */
static inline float face(float a, float b, float c, float d, float e) {
  float first = (3 * a - 10 * b + 15 * c) / 8, second = (-b + 6 * c + 3 * d) / 8, third = (3 * c + 6 * d - e) / 8;
  float s0 = 13.0f / 12 * square(a - 2 * b + c) + square(a - 4 * b + 3 * c) / 4;
  float s1 = 13.0f / 12 * square(b - 2 * c + d) + square(b - d) / 4;
  float s2 = 13.0f / 12 * square(c - 2 * d + e) + square(3 * c - 4 * d + e) / 4;
  float least = 1e-12f * (a * a + b * b + c * c + d * d + e * e) + 1e-30f, gap = fabsf(s0 - s2);
  float w0 = 1.0f / 16 * (1 + square(gap / (s0 + least))), w1 = 10.0f / 16 * (1 + square(gap / (s1 + least)));
  float w2 = 5.0f / 16 * (1 + square(gap / (s2 + least)));
  return (w0 * first + w1 * second + w2 * third) / (w0 + w1 + w2);
}

/* Fluxes through the faces between cells 2 and 3 of six; `w` are pointers to primitives, the normal velocity second, and
   `f` to the cells' own fluxes. */
static void faces(const float *const w[4], const float *const f[4], long stride, float *const out[4], int n) {
  const float second[3] = {-5.0f / 48, 39.0f / 48, -34.0f / 48}, fourth[3] = {0.5f, -1.5f, 1.0f};
  float c[3];
#pragma GCC unroll 3
  for (int k = 0; k < 3; k++) c[k] = -second[k] / 24 + 7 * fourth[k] / 5760;
#pragma omp simd
  for (int j = 0; j < n; j++) {
    float l[4], r[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      const float *x = w[v] + j;
      float x0 = x[0], x1 = x[stride], x2 = x[2 * stride], x3 = x[3 * stride], x4 = x[4 * stride], x5 = x[5 * stride];
      l[v] = face(x0, x1, x2, x3, x4);
      r[v] = face(x5, x4, x3, x2, x1);
    }
    float rl = sqrtf(l[0]), rr = sqrtf(r[0]), total = rl + rr;
    float u = (rl * l[1] + rr * r[1]) / total, t = (rl * l[2] + rr * r[2]) / total;
    float hl = GAMMA / (GAMMA - 1) * l[3] / l[0] + (l[1] * l[1] + l[2] * l[2]) / 2;
    float hr = GAMMA / (GAMMA - 1) * r[3] / r[0] + (r[1] * r[1] + r[2] * r[2]) / 2;
    float sound = sqrtf((GAMMA - 1) * ((rl * hl + rr * hr) / total - (u * u + t * t) / 2));
    float low = fminf(l[1] - sqrtf(GAMMA * l[3] / l[0]), u - sound);
    float high = fmaxf(r[1] + sqrtf(GAMMA * r[3] / r[0]), u + sound);
    float a = l[0] * (low - l[1]), b = r[0] * (high - r[1]);
    float contact = (r[3] - l[3] + a * l[1] - b * r[1]) / (a - b);
    int from_left = contact >= 0;
    float speed = from_left ? low : high, s[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) s[v] = from_left ? l[v] : r[v];
    float outwards = from_left ? fminf(speed, 0) : fmaxf(speed, 0);
    float energy = s[3] / (GAMMA - 1) + s[0] * (s[1] * s[1] + s[2] * s[2]) / 2;
    float dense = s[0] * (speed - s[1]) / (speed - contact);
    float star = energy / s[0] + (contact - s[1]) * (contact + s[3] / (s[0] * (speed - s[1])));
    float flux[4] = {s[0] * s[1], s[0] * s[1] * s[1] + s[3], s[0] * s[1] * s[2], (energy + s[3]) * s[1]};
    flux[0] += outwards * (dense - s[0]);
    flux[1] += outwards * (dense * contact - s[0] * s[1]);
    flux[2] += outwards * (dense * s[2] - s[0] * s[2]);
    flux[3] += outwards * (dense * star - energy);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      const float *x = f[v] + j;
      out[v][j] = flux[v] + c[0] * (x[0] + x[5 * stride]) + c[1] * (x[stride] + x[4 * stride]) +
                  c[2] * (x[2 * stride] + x[3 * stride]);
    }
  }
}

/* Primitives and the fluxes along the first and the second axis, of cells i; rows have a halo on each side. */
static void cells(const float *y, float *w, float *f, float *g, int n, int i) {
  int wide = n + 2 * HALO;
  long size = (long)wide * wide, at = (long)(i + HALO) * wide + HALO;
#pragma omp simd
  for (int j = 0; j < n; j++) {
    long k = (long)i * n + j, to = at + j;
    float d = y[k], u = y[(long)n * n + k] / d, v = y[2L * n * n + k] / d, e = y[3L * n * n + k];
    float p = (GAMMA - 1) * (e - d * (u * u + v * v) / 2);
    w[to] = d, w[size + to] = u, w[2 * size + to] = v, w[3 * size + to] = p;
    f[to] = d * u, f[size + to] = d * u * u + p, f[2 * size + to] = d * u * v, f[3 * size + to] = (e + p) * u;
    g[to] = d * v, g[size + to] = d * u * v, g[2 * size + to] = d * v * v + p, g[3 * size + to] = (e + p) * v;
  }
}

static void around(float *x, int n, int i) {
  int wide = n + 2 * HALO;
  float *row = x + (long)(i + HALO) * wide;
  memcpy(row, row + n, HALO * sizeof(float));
  memcpy(row + HALO + n, row + HALO, HALO * sizeof(float));
}

/* `out = keep * y + (1 - keep) * (x + dt * rates(x))`. */
static void stage(const float *y, const float *x, float *out, float keep, float dt, int n, float *work) {
  int wide = n + 2 * HALO;
  long size = (long)wide * wide, faces_size = (long)(n + 1) * n;
  float *w = work, *f = w + 4 * size, *g = f + 4 * size, *through = g + 4 * size;
#pragma omp parallel
  {
#pragma omp for
    for (int i = 0; i < n; i++) {
      cells(x, w, f, g, n, i);
      for (int v = 0; v < 4; v++) around(w + v * size, n, i), around(f + v * size, n, i), around(g + v * size, n, i);
    }
#pragma omp single
    for (int v = 0; v < 12; v++) {
      float *all = w + v * size;
      memcpy(all, all + (long)n * wide, (size_t)HALO * wide * sizeof(float));
      memcpy(all + (long)(n + HALO) * wide, all + (long)HALO * wide, (size_t)HALO * wide * sizeof(float));
    }
#pragma omp for
    for (int i = 0; i <= n; i++) { /* the face before row i */
      const float *from[4], *own[4];
      float *to[4];
      for (int v = 0; v < 4; v++) {
        long at = v * size + (long)i * wide + HALO;
        from[v] = w + at, own[v] = f + at, to[v] = through + v * faces_size + (long)i * n;
      }
      faces(from, own, wide, to, n);
    }
    float *along = malloc(4 * (size_t)(n + 1) * sizeof(float));
#pragma omp for
    for (int i = 0; i < n; i++) {
      const float *from[4], *own[4];
      float *to[4];
      const int order[4] = {0, 2, 1, 3};
      for (int v = 0; v < 4; v++) {
        long at = order[v] * size + (long)(i + HALO) * wide;
        from[v] = w + at, own[v] = g + at, to[v] = along + order[v] * (n + 1);
      }
      faces(from, own, 1, to, n + 1);
      for (int v = 0; v < 4; v++) {
        const float *before = through + v * faces_size + (long)i * n, *after = before + n, *side = along + v * (n + 1);
        long at = (long)v * n * n + (long)i * n;
#pragma omp simd
        for (int j = 0; j < n; j++) {
          float rate = -(after[j] - before[j] + side[j + 1] - side[j]) * n;
          out[at + j] = keep * y[at + j] + (1 - keep) * (x[at + j] + dt * rate);
        }
      }
    }
    free(along);
  }
}

void euler(const float *start, float *y, int n, int steps, float dt) {
  long size = (long)n * n, wide = n + 2 * HALO;
  float *work = malloc((12 * wide * wide + 4 * (size + n)) * sizeof(float));
  float *first = malloc(4 * size * sizeof(float)), *second = malloc(4 * size * sizeof(float));
  memcpy(y, start, 4 * size * sizeof(float));
  for (int i = 0; i < steps; i++) {
    stage(y, y, first, 0.0f, dt, n, work);
    stage(y, first, second, 0.75f, dt, n, work);
    stage(y, second, y, 1.0f / 3, dt, n, work);
  }
  free(work), free(first), free(second);
}
