#include <gtest/gtest.h>

#include <string>

#include "client/ctl/top/state.h"

namespace concert::ctl {
namespace {

class TopStateTest : public testing::Test {
 protected:
  void Type(const std::string& text) {
    for (const char c : text) Press({Key::Kind::kText, std::string(1, c)});
  }
  void Press(const Key& key) {
    ctl::Press(
        key,
        [](const std::string& name) {
          return name == "alice" ? std::optional<uint32_t>(1000) : std::nullopt;
        },
        &state_);
  }
  void Press(Key::Kind kind) { Press(Key{kind, ""}); }

  TopState state_;
};

TEST_F(TopStateTest, SortTurnsThroughAllColumnsAndBack) {
  EXPECT_EQ(state_.sort, SessionColumn::kGpu);
  Type("r");
  EXPECT_TRUE(state_.reversed);
  Type("s");
  EXPECT_EQ(state_.sort, SessionColumn::kCompany);
  EXPECT_FALSE(state_.reversed);
  for (int i = 1; i < kSessionColumnCount; ++i) Type(">");
  EXPECT_EQ(state_.sort, SessionColumn::kGpu);
  for (int i = 0; i < kSessionColumnCount + 8; ++i) Type("S");
  EXPECT_EQ(state_.sort, SessionColumn::kSession);
}

TEST_F(TopStateTest, FiltersAreTypedTurnedAndCleared) {
  Type("cc");
  EXPECT_EQ(state_.priority, "normal");
  Type("f7b");
  EXPECT_EQ(state_.session, "");  // not yet
  Press(Key::Kind::kBackspace);
  Press(Key::Kind::kEnter);
  EXPECT_EQ(state_.session, "7");
  Type("u1001");
  Press(Key::Kind::kEnter);
  EXPECT_EQ(state_.uid, 1001u);
  Type("ualice");
  Press(Key::Kind::kEnter);
  EXPECT_EQ(state_.uid, 1000u);
  EXPECT_TRUE(state_.filtered());
  Press(Key::Kind::kEscape);
  EXPECT_FALSE(state_.filtered());
}

TEST_F(TopStateTest, KeysAtAPromptAreText) {
  Type("fq?s");
  EXPECT_FALSE(state_.quit);
  EXPECT_EQ(state_.typed, "q?s");
  Press({Key::Kind::kText, "\u8a13"});
  Press(Key::Kind::kBackspace);  // one character, three bytes
  EXPECT_EQ(state_.typed, "q?s");
  Press(Key::Kind::kPageDown);
  Press(Key::Kind::kEscape);
  EXPECT_EQ(state_.session, "");
  EXPECT_EQ(state_.prompt, TopState::Prompt::kNone);
  Type("f" + std::string(1000, 'x'));
  EXPECT_LE(state_.typed.size(), 64u);
}

TEST_F(TopStateTest, AnUnknownUserIsAnErrorAndNothingChanges) {
  Type("ubob");
  Press(Key::Kind::kEnter);
  EXPECT_FALSE(state_.uid.has_value());
  EXPECT_EQ(state_.message, "this machine has no user 'bob'");
  EXPECT_EQ(state_.prompt, TopState::Prompt::kUser);
  Press(Key::Kind::kBackspace);
  EXPECT_EQ(state_.message, "");
  EXPECT_EQ(state_.typed, "bo");
  Type("99999999999999999999");  // no 32-bit number
  Press(Key::Kind::kEnter);
  EXPECT_NE(state_.message, "");
}

TEST_F(TopStateTest, AnEmptyAnswerMeansAll) {
  state_.uid = 1;
  state_.session = "a";
  Type("u");
  Press(Key::Kind::kEnter);
  Type("f");
  Press(Key::Kind::kEnter);
  EXPECT_FALSE(state_.filtered());
}

TEST_F(TopStateTest, ScrollsWithinWhatThereIs) {
  Frame frame;
  frame.row_count = 30;
  frame.shown_count = 8;
  NoteShown(frame, &state_);
  Press(Key::Kind::kUp);
  EXPECT_EQ(state_.scroll, 0);
  Press(Key::Kind::kPageDown);
  Type("j");
  EXPECT_EQ(state_.scroll, 9);
  Press(Key::Kind::kEnd);
  EXPECT_EQ(state_.scroll, 22);
  Press(Key::Kind::kDown);
  EXPECT_EQ(state_.scroll, 22);
  frame.row_count = 10;  // most have gone
  NoteShown(frame, &state_);
  EXPECT_EQ(state_.scroll, 2);
  Press(Key::Kind::kHome);
  EXPECT_EQ(state_.scroll, 0);
}

TEST_F(TopStateTest, AnyKeyLeavesTheHelp) {
  Type("?");
  EXPECT_TRUE(state_.help);
  Type("s");
  EXPECT_FALSE(state_.help);
  EXPECT_EQ(state_.sort, SessionColumn::kGpu);
  Type("?q");
  EXPECT_TRUE(state_.quit);
}

}  // namespace
}  // namespace concert::ctl
