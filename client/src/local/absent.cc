// The fallback of builds without the CUDA toolkit: there is none.
#include "client/src/failure.h"
#include "client/src/local/connect.h"

namespace concert::client {

int ConnectLocal(const concert_connect_options&, const char* why, std::shared_ptr<concert_session>*,
                 concert_error* error) {
  return Fail(error, CONCERT_UNIMPLEMENTED,
              "%s; CONCERT_FALLBACK=cublas needs a libconcert that was built with CUDA", why);
}

}  // namespace concert::client
