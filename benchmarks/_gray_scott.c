/* Gray-Scott on a periodic grid by explicit Euler, one pass over memory a step. */
#include <stdlib.h>
#include <string.h>

void gray_scott(const float *start, float *out, int n, int steps, float rate_u, float rate_v, float feed, float kill) {
    size_t size = 2 * (size_t)n * n;
    float *now = malloc(size * sizeof(float)), *next = malloc(size * sizeof(float));
    memcpy(now, start, size * sizeof(float));
    for (int step = 0; step < steps; step++) {
        const float *u = now, *v = now + (size_t)n * n;
        float *next_u = next, *next_v = next + (size_t)n * n;
#pragma omp parallel for
        for (int i = 0; i < n; i++) {
            const float *uc = u + (size_t)i * n, *vc = v + (size_t)i * n;
            const float *ub = u + (size_t)(i ? i - 1 : n - 1) * n, *vb = v + (size_t)(i ? i - 1 : n - 1) * n;
            const float *ua = u + (size_t)(i < n - 1 ? i + 1 : 0) * n, *va = v + (size_t)(i < n - 1 ? i + 1 : 0) * n;
            float *restrict du = next_u + (size_t)i * n, *restrict dv = next_v + (size_t)i * n;
#define CELL(j, l, r)                                                                      \
    do {                                                                                   \
        float lap_u = ub[j] + ua[j] + uc[l] + uc[r] - 4 * uc[j];                            \
        float lap_v = vb[j] + va[j] + vc[l] + vc[r] - 4 * vc[j];                            \
        float reaction = uc[j] * vc[j] * vc[j];                                            \
        du[j] = uc[j] + rate_u * lap_u - reaction + feed * (1 - uc[j]);                     \
        dv[j] = vc[j] + rate_v * lap_v + reaction - (feed + kill) * vc[j];                  \
    } while (0)
            CELL(0, n - 1, 1);
#pragma omp simd
            for (int j = 1; j < n - 1; j++) CELL(j, j - 1, j + 1);
            CELL(n - 1, n - 2, 0);
        }
        float *swap = now;
        now = next;
        next = swap;
    }
    memcpy(out, now, size * sizeof(float));
    free(now);
    free(next);
}
