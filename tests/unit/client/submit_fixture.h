// A session with a daemon that keeps what it is given.
#ifndef CONCERT_TESTS_UNIT_CLIENT_SUBMIT_FIXTURE_H_
#define CONCERT_TESTS_UNIT_CLIENT_SUBMIT_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "concert/concert.hpp"
#include "tests/support/fake_daemon.h"

namespace concert {

class SubmitTest : public testing::Test {
 protected:
  explicit SubmitTest(test::FakeDaemon::Options options = {}) : daemon_(std::move(options)) {}

  Session Connect(std::chrono::nanoseconds submit_timeout = std::chrono::nanoseconds(-1)) {
    return Session::Connect({.socket_path = daemon_.path(),
                             .submit_timeout = submit_timeout,
                             .fallback = Fallback::kNone})
        .value();
  }

  test::FakeDaemon daemon_;
  Session session_ = Connect();
  Buffer x_ = session_.Allocate(4096).value();  // buffer 1
  Buffer y_ = session_.Allocate(4096).value();  // buffer 2
  Queue queue_ = session_.CreateQueue({.priority = kHigh}).value();
  const CopyOp copy_ = {.src = x_, .dst = y_, .bytes = 8};
};

}  // namespace concert

#endif  // CONCERT_TESTS_UNIT_CLIENT_SUBMIT_FIXTURE_H_
