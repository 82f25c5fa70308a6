/* Lorenz ensemble by Tsit5, float32: the arithmetic of the fixed and of the adaptive solve without any framework.
   Members are cut in blocks of LANES; inside a block every loop runs over lanes, so that the compiler vectorises it. */
#include <math.h>

#define LANES 32
#define LOOP for (int l = 0; l < LANES; l++)
typedef float state[3][LANES];

static const float A[6][6] = {
    {0.161f},
    {-0.008480655492356989f, 0.335480655492357f},
    {2.8971530571054935f, -6.359448489975075f, 4.3622954328695815f},
    {5.325864828439257f, -11.748883564062828f, 7.4955393428898365f, -0.09249506636175525f},
    {5.86145544294642f, -12.92096931784711f, 8.159367898576159f, -0.071584973281401f, -0.028269050394068383f},
    {0.09646076681806523f, 0.01f, 0.4798896504144996f, 1.379008574103742f, -3.290069515436081f, 2.324710524099774f}};
static const float E[7] = {-0.00178001105222577714f, -0.0008164344596567469f, 0.007880878010261995f,
                           -0.1447110071732629f, 0.5823571654525552f, -0.45808210592918697f, 1.0f / 66.0f};

static inline void slope(state y, const float *rho, state k) {
  LOOP {
    float x = y[0][l], u = y[1][l], z = y[2][l];
    k[0][l] = 10.0f * (u - x);
    k[1][l] = x * (rho[l] - z) - u;
    k[2][l] = x * u - (8.0f / 3.0f) * z;
  }
}

/* One step of size h[l] in each lane; k[0] must hold the slope at y. The end point is in `end`, its slope in k[6]. */
static inline void step(state y, const float *h, const float *rho, state *k, state end) {
#pragma GCC unroll 6
  for (int s = 0; s < 6; s++) {
#pragma GCC unroll 3
    for (int c = 0; c < 3; c++) LOOP {
      float sum = A[s][0] * k[0][c][l];
#pragma GCC unroll 5
      for (int j = 1; j <= s; j++) sum += A[s][j] * k[j][c][l];
      end[c][l] = y[c][l] + h[l] * sum;
    }
    slope(end, rho, k[s + 1]);
  }
}

static void start(state y, state k0, float *r, const float *rho, int first, int n) {
  LOOP { r[l] = rho[first + l < n ? first + l : n - 1]; y[0][l] = 1.0f; y[1][l] = 0.0f; y[2][l] = 0.0f; }
  slope(y, r, k0);
}

static void finish(state y, float *out, int first, int n) {
  for (int l = 0; l < LANES && first + l < n; l++)
    for (int c = 0; c < 3; c++) out[3 * (first + l) + c] = y[c][l];
}

void fixed(const float *rho, float *out, int n, int steps, float dt) {
#pragma omp parallel for schedule(dynamic)
  for (int first = 0; first < n; first += LANES) {
    state y, end, k[7];
    float r[LANES], h[LANES];
    start(y, k[0], r, rho, first, n);
    LOOP h[l] = dt;
    for (int i = 0; i < steps; i++) {
      step(y, h, r, k, end);
      for (int c = 0; c < 3; c++) LOOP { y[c][l] = end[c][l]; k[0][c][l] = k[6][c][l]; }
    }
    finish(y, out, first, n);
  }
}

void adaptive(const float *rho, float *out, int n, float tol, float dt0) {
#pragma omp parallel for schedule(dynamic)
  for (int first = 0; first < n; first += LANES) {
    state y, end, k[7];
    float r[LANES], h[LANES], cut[LANES], t[LANES];
    start(y, k[0], r, rho, first, n);
    LOOP { t[l] = 0.0f; h[l] = dt0; }
    for (int left = LANES; left > 0;) {
      LOOP cut[l] = fminf(h[l], 1.0f - t[l]);
      step(y, cut, r, k, end);
      float e2[LANES] = {0};
      for (int c = 0; c < 3; c++) LOOP {
        float e = 0.0f;
#pragma GCC unroll 7
        for (int j = 0; j < 7; j++) e += E[j] * k[j][c][l];
        e *= cut[l] / (tol + tol * fmaxf(fabsf(y[c][l]), fabsf(end[c][l])));
        e2[l] += e * e / 3.0f;
      }
      left = 0;
      LOOP {
        int accept = e2[l] <= 1.0f, last = h[l] >= 1.0f - t[l], live = t[l] < 1.0f;
        float factor = fminf(10.0f, fmaxf(0.2f, 0.9f * expf(-0.1f * logf(fmaxf(e2[l], 1e-10f)))));
        for (int c = 0; c < 3; c++) {
          y[c][l] = accept & live ? end[c][l] : y[c][l];
          k[0][c][l] = accept & live ? k[6][c][l] : k[0][c][l];
        }
        t[l] = accept & live ? (last ? 1.0f : t[l] + cut[l]) : t[l];
        h[l] = live ? cut[l] * factor : h[l];
        left += t[l] < 1.0f;
      }
    }
    finish(y, out, first, n);
  }
}
