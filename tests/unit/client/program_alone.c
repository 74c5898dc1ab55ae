/* Compiles: program.h needs no other header before it. */
#include "concert/program.h"

concert_run program_alone(void);
concert_run program_alone(void) {
  concert_run run = {0};
  return run;
}
