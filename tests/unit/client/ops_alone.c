/* Compiles: ops.h needs no other header before it. */
#include "concert/ops.h"

concert_gemm ops_alone(void);
concert_gemm ops_alone(void) {
  concert_gemm gemm = CONCERT_GEMM_INIT;
  return gemm;
}
