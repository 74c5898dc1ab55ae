/* The C ABI from C: options of zeroes but for struct_size, an error with a sentence, NULL where it may be. */
#include <concert/concert.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  concert_connect_options options = CONCERT_INIT(options);
  concert_gemm gemm = CONCERT_GEMM_INIT;
  concert_session* session = NULL;
  concert_error error;
  options.socket_path = "/nonexistent/concert.sock";
  options.fallback = CONCERT_FALLBACK_NONE;
  if (concert_connect(&options, &session, &error) != CONCERT_UNAVAILABLE) return 1;
  if (error.code != CONCERT_UNAVAILABLE || session != NULL) return 2;
  if (strstr(error.message, "/nonexistent/concert.sock") == NULL) return 3;
  if (concert_connect(&options, &session, NULL) != CONCERT_UNAVAILABLE) return 4;
  if (strcmp(concert_code_name(CONCERT_UNAVAILABLE), "UNAVAILABLE") != 0) return 5;
  if (gemm.alpha != 1 || gemm.beta != 0 || gemm.struct_size != sizeof(gemm)) return 6;
  concert_session_close(NULL);
  concert_buffer_free(NULL);
  concert_queue_destroy(NULL);
  printf("libconcert %s: %s\n", concert_version(), error.message);
  return 0;
}
