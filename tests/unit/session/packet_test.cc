#include "daemon/session/packet.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "daemon/check.h"

namespace concert::daemon {
namespace {

class PacketTest : public testing::Test {
 protected:
  PacketTest() {
    int ends[2];
    CONCERT_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    client_ = UniqueFd(ends[0]);
    daemon_ = UniqueFd(ends[1]);
  }
  void Send(const void* packet, size_t bytes) {
    ASSERT_EQ(send(client_.get(), packet, bytes, 0), static_cast<ssize_t>(bytes));
  }

  UniqueFd client_, daemon_;
  concert_seal_buffer seal_{.header = {.magic = CONCERT_CONTROL_MAGIC,
                                       .type = CONCERT_CONTROL_SEAL_BUFFER,
                                       .size = sizeof(concert_seal_buffer),
                                       .request = 1,
                                       .reserved = 0},
                            .buffer = 7,
                            .reserved = 0};
};

// Who is told of a type may leave the packet for later; of nothing, all that comes behind it.
TEST_F(PacketTest, TheNextTypeIsThatOfThePacketThatIsReceivedNext) {
  uint16_t type = 0;
  Packet packet;
  EXPECT_EQ(NextType(daemon_.get(), type), Received::kNothing);
  EXPECT_EQ(Receive(daemon_.get(), packet), Received::kNothing);
  Send(&seal_, sizeof(seal_));
  Send(&seal_, sizeof(seal_.header) - 1);
  for (int look = 0; look < 2; ++look) {
    type = 0;
    EXPECT_EQ(NextType(daemon_.get(), type), Received::kPacket);
    EXPECT_EQ(type, CONCERT_CONTROL_SEAL_BUFFER);
  }
  ASSERT_EQ(Receive(daemon_.get(), packet), Received::kPacket);
  EXPECT_TRUE(packet.WellFormed());
  EXPECT_EQ(packet.as<concert_seal_buffer>().buffer, 7u);
  EXPECT_EQ(NextType(daemon_.get(), type), Received::kOver) << "too short to have one";
  EXPECT_EQ(Receive(daemon_.get(), packet), Received::kOver);
  EXPECT_EQ(NextType(daemon_.get(), type), Received::kNothing);
  client_ = UniqueFd();
  EXPECT_EQ(NextType(daemon_.get(), type), Received::kOver);
  EXPECT_EQ(Receive(daemon_.get(), packet), Received::kOver);
}

// Else its request would be received without having been looked at.
TEST_F(PacketTest, AClientThatLeavesARequestAndAnUnreadReplyIsGone) {
  ASSERT_EQ(send(daemon_.get(), &seal_, sizeof(seal_), 0), static_cast<ssize_t>(sizeof(seal_)));
  Send(&seal_, sizeof(seal_));
  client_ = UniqueFd();
  uint16_t type = 0;
  EXPECT_EQ(NextType(daemon_.get(), type), Received::kOver);
}

}  // namespace
}  // namespace concert::daemon
