// The fallback: without a daemon, GEMMs and copies run in this process with cuBLASLt, one stream
// per queue.
#ifndef CONCERT_CLIENT_SRC_LOCAL_CONNECT_H_
#define CONCERT_CLIENT_SRC_LOCAL_CONNECT_H_

#include <memory>

#include "client/src/handles.h"
#include "concert/concert.h"

namespace concert::client {

// Says so once on stderr, with `why` there is no daemon. UNIMPLEMENTED in builds without CUDA;
// UNAVAILABLE when libcuda or cuBLASLt cannot be opened or there is no GPU.
int ConnectLocal(const concert_connect_options& options, const char* why,
                 std::shared_ptr<concert_session>* session, concert_error* error);

}  // namespace concert::client

#endif  // CONCERT_CLIENT_SRC_LOCAL_CONNECT_H_
