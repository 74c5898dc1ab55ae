// Screens of `top` for fixed data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client/ctl/top/draw.h"
#include "client/ctl/top/rows.h"
#include "tests/support/seed.h"
#include "tests/unit/ctl/top_fixture.h"

namespace concert::ctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string ShownText(const Frame& frame) {
  std::string text;
  for (const Line& line : frame.lines) {
    std::string shown = line.Text();
    shown.erase(shown.find_last_not_of(' ') + 1);
    text += shown + "\n";
  }
  return text;
}

class TopDrawTest : public testing::Test {
 protected:
  TopDrawTest() {
    AddSession(3, 1000, "server-a", &sample_);
    AddSession(12, 1001, "b", &sample_);
    AddSession(7, 1001, "trainer", &sample_);
    AddSessionOps(3, "high", 300, 0.2, &sample_);
    AddSessionOps(3, "low", 100, 0.2, &sample_);
    AddSessionOps(7, "normal", 600, 0.46, &sample_);
    history_.Add(sample_);
  }

  Frame Draw(Size size, bool unicode = true) {
    const Frame frame = DrawTop(sample_, history_, state_, {size, unicode});
    EXPECT_LE(frame.lines.size(), static_cast<size_t>(std::max(0, size.rows)));
    for (const Line& line : frame.lines) {
      EXPECT_LE(Columns(line.Text()), size.columns) << line.Text();
      EXPECT_EQ(Fit(line.Text(), size.columns), line.Text());  // nothing that a terminal obeys
    }
    return frame;
  }
  std::string Text(Size size, bool unicode = true) { return ShownText(Draw(size, unicode)); }
  // The sessions that are listed, from the top.
  std::vector<std::string> Listed() {
    const std::string text = Text({24, 80});
    std::istringstream lines(text.substr(text.find("\nSESSION ") + 1));
    std::vector<std::string> ids;
    std::string line, id;
    std::getline(lines, line);
    while (std::getline(lines, line) && std::istringstream(line) >> id) ids.push_back(id);
    return ids;
  }

  TopSample sample_ = SampleOf(2);
  History history_;
  TopState state_;
};

TEST_F(TopDrawTest, OneScreenOf80Columns) {
  EXPECT_EQ(Text({24, 80}),
            R"(concertd 0.1.0  policy auto  up 2 h 10 min  1.23 M ops
GPU 0  NVIDIA H200                 12.0 of 141 GiB  412 of 700 W  1.98 GHz  54 C
GPU time    [|||||||||            43 %]  SMs planned [||||||               31 %]
bandwidth   [|||        1.05 TB/s 25 %]  queue depth [|||||||||||||||| 12 of 12]
GPU time

                                                                               ▆
                                                                               █
GPU 1  NVIDIA H200                                 - of 141 GiB  - W  - GHz  - C
GPU time    [                        -]  SMs planned [                        -]
bandwidth   [                        -]  queue depth [                        -]
GPU time



SESSIONS 3
SESSION  UID CLIENT   CLASS  OPS/S FLOP/S  B/S GPU WAIT50 WAIT99  RUN50  RUN99
      7 1001 trainer  normal   300   300G 315M 23%  8.2us 1.53ms 41.0us 2.40ms
      3 1000 server-a mixed    200   200G 210M 20%  8.2us 1.53ms 41.0us 2.40ms
     12 1001 b        -          -      -    -   -      -      -      -      -



q quit  ? help  s sort:GPU  r reverse  f session  u user  c class  h history
)");
}

TEST_F(TopDrawTest, ManyGpusHaveALineEach) {
  sample_.devices = SampleOf(8).devices;
  EXPECT_EQ(Text({18, 80}), R"(concertd 0.1.0  policy auto  up 2 h 10 min  1.23 M ops
GPU GPU TIME     SMS PLANNED  BANDWIDTH    QUEUE DEPTH           MEMORY POWER
  0 [||    43 %] [||    31 %] [|     25 %] [||||||| 12] 12.0 of 141 GiB 412 W
  1 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  2 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  3 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  4 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  5 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  6 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
  7 [         -] [         -] [         -] [         -]    - of 141 GiB   - W
SESSIONS 3
SESSION  UID CLIENT   CLASS  OPS/S FLOP/S  B/S GPU WAIT50 WAIT99  RUN50  RUN99
      7 1001 trainer  normal   300   300G 315M 23%  8.2us 1.53ms 41.0us 2.40ms
      3 1000 server-a mixed    200   200G 210M 20%  8.2us 1.53ms 41.0us 2.40ms
     12 1001 b        -          -      -    -   -      -      -      -      -


q quit  ? help  s sort:GPU  r reverse  f session  u user  c class  h history
)");
  EXPECT_THAT(Text({14, 80}), HasSubstr("\n3 more GPUs: the window is too low\nSESSIONS 3\n"));
}

TEST_F(TopDrawTest, ATinyScreenShowsTheBusiestSession) {
  EXPECT_EQ(Text({5, 20}), R"(concertd 0.1.0  pol~
SESSIONS 3: 1 to 1
SESSION CLIENT   GPU
      7 trainer  23%
q quit  ? help
)");
  EXPECT_EQ(Text({1, 20}), "concertd 0.1.0  pol~\n");
}

TEST_F(TopDrawTest, AWideScreenHasEveryColumn) {
  const std::string text = Text({24, 120});
  for (int i = 0; i < kSessionColumnCount; ++i)
    EXPECT_THAT(text, HasSubstr(TitleOf(static_cast<SessionColumn>(i))));
}

TEST_F(TopDrawTest, TheColumnThatIsSortedByIsAlwaysThere) {
  for (int i = 0; i < kSessionColumnCount; ++i) {
    state_.sort = static_cast<SessionColumn>(i);
    EXPECT_THAT(Text({24, 40}), HasSubstr(TitleOf(state_.sort)));
    EXPECT_THAT(Text({24, 40}), HasSubstr(std::string("s sort:") + TitleOf(state_.sort)));
  }
}

TEST_F(TopDrawTest, SortsByAnyColumnWithIdleSessionsLast) {
  EXPECT_THAT(Listed(), ElementsAre("7", "3", "12"));
  state_.reversed = true;
  EXPECT_THAT(Listed(), ElementsAre("3", "7", "12"));
  state_.reversed = false;
  state_.sort = SessionColumn::kSession;
  EXPECT_THAT(Listed(), ElementsAre("3", "7", "12"));
  state_.sort = SessionColumn::kClient;
  EXPECT_THAT(Listed(), ElementsAre("12", "3", "7"));
  state_.sort = SessionColumn::kClass;  // mixed before normal
  EXPECT_THAT(Listed(), ElementsAre("3", "7", "12"));
  state_.sort = SessionColumn::kUid;  // equals by session
  EXPECT_THAT(Listed(), ElementsAre("3", "7", "12"));
  state_.reversed = true;
  EXPECT_THAT(Listed(), ElementsAre("7", "12", "3"));
}

TEST_F(TopDrawTest, FiltersBySessionUserAndClass) {
  state_.session = "TRAIN";
  EXPECT_THAT(Listed(), ElementsAre("7"));
  state_.session = "12";
  EXPECT_THAT(Listed(), ElementsAre("12"));
  state_.session.clear();
  state_.uid = 1001;
  EXPECT_THAT(Listed(), ElementsAre("7", "12"));
  EXPECT_THAT(Text({24, 80}), HasSubstr("SESSIONS 2 of 3  user 1001\n"));
  state_.uid.reset();
  state_.priority = "high";
  EXPECT_THAT(Listed(), ElementsAre("3"));
  // Its ops of that class; times are known of all its ops only.
  EXPECT_THAT(
      Text({24, 80}),
      HasSubstr("      3 1000 server-a high    150   150G 157M 10%      -      -     -     -\n"));
  state_.priority = "normal";  // all that session 7 did
  EXPECT_THAT(Text({24, 80}), HasSubstr(" 23%  8.2us 1.53ms 41.0us 2.40ms\n"));
  state_.priority = "low";
  state_.session = "b";
  EXPECT_THAT(Listed(), ElementsAre());
  EXPECT_THAT(Text({24, 80}), HasSubstr("SESSIONS 0 of 3  b  class low\n"));
}

TEST_F(TopDrawTest, ScrollsAndSaysWhere) {
  for (uint32_t id = 100; id < 140; ++id) AddSession(id, 0, "idle", &sample_);
  const Frame frame = Draw({24, 80});
  EXPECT_EQ(frame.row_count, 43);
  EXPECT_THAT(Text({24, 80}), HasSubstr("SESSIONS 43: 1 to 8\n"));
  state_.scroll = 30;
  EXPECT_THAT(Text({24, 80}), HasSubstr("SESSIONS 43: 31 to 38\n"));
  EXPECT_EQ(Listed().front(), "127");
  state_.scroll = 1'000'000;
  EXPECT_THAT(Text({24, 80}), HasSubstr("SESSIONS 43: 36 to 43\n"));
}

TEST_F(TopDrawTest, ASessionsTimeIsAShareOfTheGpusThatItUsed) {
  sample_.delta.mutable_stats()->mutable_sessions(1)->add_gpus(1);
  EXPECT_THAT(Text({24, 80}), HasSubstr("300G 315M 12%"));
}

TEST_F(TopDrawTest, WhatMustNotBeMissedIsSeenOnAnyWidth) {
  sample_.status.set_simulated(true);
  sample_.status.set_degraded("a GPU cannot be used");
  sample_.devices.mutable_devices(1)->set_healthy(false);
  sample_.devices.mutable_devices(1)->set_health_message("device error 700");
  EXPECT_THAT(Text({24, 34}), HasSubstr("concertd 0.1.0 SIMULATED DEGRADED"));
  EXPECT_THAT(Text({24, 80}), HasSubstr("GPU 1  NVIDIA H200  FAILED: device error 700\n"));
  EXPECT_THAT(Text({12, 80}), HasSubstr("[         -]          FAILED"));
}

TEST_F(TopDrawTest, SensorsThatHaveNoRoomGoAndTheNameIsCutLast) {
  sample_.devices.mutable_devices(0)->set_name("NVIDIA H100 80GB HBM3 of a long name");
  EXPECT_THAT(Text({24, 80}),
              HasSubstr("\nGPU 0  NVIDIA H100 80GB HBM3 of a long name        12.0 of 141 GiB  "
                        "412 of 700 W\n"));
  EXPECT_THAT(Text({24, 60}),
              HasSubstr("\nGPU 0  NVIDIA H100 80GB HBM3 of a long name  12.0 of 141 GiB\n"));
  sample_.devices.mutable_devices(0)->clear_power_limit_watts();
  EXPECT_THAT(Text({24, 120}), HasSubstr(" 12.0 of 141 GiB  412 W  1.98 GHz  54 C\n"));
}

TEST_F(TopDrawTest, MemoryAndPowerHaveAHistoryToo) {
  state_.plot = Figure::kMemory;
  EXPECT_THAT(Text({24, 80}), HasSubstr("\nmemory\n9 %"));
  state_.plot = Figure::kPower;
  EXPECT_THAT(Text({24, 80}), HasSubstr("\npower\n59 %"));
  EXPECT_THAT(Text({24, 80}), HasSubstr("\npower\n-\n"));  // the other GPU does not say
}

TEST_F(TopDrawTest, BeforeTheFirstIntervalNothingIsMadeUp) {
  sample_.delta.Clear();
  const std::string text = Text({24, 80});
  EXPECT_THAT(text, HasSubstr("SESSIONS 3  first rates in one interval\n"));
  EXPECT_THAT(text, HasSubstr("GPU time    [                        -]"));
  EXPECT_THAT(text, Not(HasSubstr("%")));
}

TEST_F(TopDrawTest, PromptsMessagesAndHelp) {
  state_.prompt = TopState::Prompt::kUser;
  state_.typed = "bo";
  EXPECT_THAT(Text({24, 80}), HasSubstr("\nuser: bo_\n"));
  state_.message = "this machine has no user 'bo'";
  EXPECT_THAT(Text({24, 80}), HasSubstr("\nthis machine has no user 'bo'\n"));
  state_ = {};
  state_.help = true;
  EXPECT_THAT(Text({24, 80}),
              HasSubstr("\nc     only ops of a priority class: high, normal, low, all\n"));
}

TEST_F(TopDrawTest, AnAsciiTerminalGetsAscii) {
  sample_.sessions.mutable_sessions(0)->set_client_name("K\u00f6ln");
  const std::string text = Text({24, 80}, false);
  EXPECT_THAT(text, HasSubstr("K?ln"));
  for (const char c : text) EXPECT_GE(c, 0);
}

// Any bytes as names, such as a daemon that does not escape would send.
TEST_F(TopDrawTest, NamesCannotBreakTheScreen) {
  v1::Session* session = sample_.sessions.mutable_sessions(0);
  session->set_client_name(std::string(200, 'x'));
  EXPECT_THAT(Text({24, 80}), HasSubstr("\n      3 1000 xxxxxxxxx~ "));
  session->set_client_name("\x1b[2J\x1b]0;t\x07\r\n");
  EXPECT_THAT(Text({24, 80}), HasSubstr(" ?[2J?]0;t~"));
  std::mt19937 random(test::Seed());
  const std::string parts[] = {"\x1b[", "\u8a13", "\u0301", "\u202e",
                               "\xff",  "\n",     "ab",     "\U0001f680"};
  for (int round = 0; round < 200; ++round) {
    std::string name;
    for (uint32_t i = random() % 60; i > 0; --i) name += parts[random() % std::size(parts)];
    session->set_client_name(name);
    state_.session = random() % 2 == 0 ? name : "";
    Draw({static_cast<int>(random() % 30), static_cast<int>(random() % 100)}, random() % 2 == 0);
  }
}

TEST_F(TopDrawTest, NoScreenIsTooSmall) {
  for (const int gpus : {0, 1, 2, 8, 16}) {
    const TopSample other = SampleOf(gpus);
    sample_.devices = other.devices;
    for (int rows = 0; rows < 30; ++rows) {
      for (const int columns : {0, 1, 2, 5, 19, 20, 40, 59, 60, 79, 80, 81, 132, 300}) {
        for (const bool help : {false, true}) {
          state_.help = help;
          Draw({rows, columns}, rows % 2 == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace concert::ctl
