#include "client/ctl/text.h"

#include <gtest/gtest.h>

#include <string>

namespace concert::ctl {
namespace {

TEST(TextTest, ColumnsAreThoseOfATerminal) {
  EXPECT_EQ(Columns(""), 0);
  EXPECT_EQ(Columns("server-a"), 8);
  EXPECT_EQ(Columns("K\u00f6ln"), 4);
  EXPECT_EQ(Columns("\u8a13\u7df4"), 4);  // two wide characters
  EXPECT_EQ(Columns("e\u0301x"), 2);      // a mark on the e
  EXPECT_EQ(Columns("\U0001f680"), 2);
}

TEST(TextTest, FitCutsBetweenCharactersAndSaysSo) {
  EXPECT_EQ(Fit("server-a", 8), "server-a");
  EXPECT_EQ(Fit("server-a", 5), "serv~");
  EXPECT_EQ(Fit("server-a", 1), "~");
  EXPECT_EQ(Fit("server-a", 0), "");
  EXPECT_EQ(Fit("\u8a13\u7df4", 4), "\u8a13\u7df4");
  EXPECT_EQ(Fit("\u8a13\u7df4", 3), "\u8a13~");
  EXPECT_EQ(Fit("\u8a13\u7df4", 2), "~");  // half a character cannot be shown
  EXPECT_EQ(Fit("ae\u0301b", 2), "a~");
  for (int width = 0; width < 12; ++width)
    EXPECT_LE(Columns(Fit("a\u8a13b\u7df4ce\u0301\u0301", width)), width) << width;
}

TEST(TextTest, WhatCannotBeShownIsAQuestionMark) {
  EXPECT_EQ(Fit("a\x1b[2J\nb\xff", 80), "a?[2J?b?");
  EXPECT_EQ(Fit("\u0301a", 80), "?a");  // a mark on nothing
  EXPECT_EQ(Fit("\xe8\xa8", 80), "??");
  EXPECT_EQ(Fit(std::string_view("a\0b", 3), 80), "a?b");
}

TEST(TextTest, MarksDoNotPileUp) {
  std::string pile = "e";
  for (int i = 0; i < 100; ++i) pile += "\u0301";
  EXPECT_EQ(Fit(pile + "x", 80), "e\u0301\u0301x");
}

TEST(TextTest, PadFillsColumnsNotBytes) {
  EXPECT_EQ(Pad("\u8a13", 4, Align::kLeft), "\u8a13  ");
  EXPECT_EQ(Pad("\u8a13", 4, Align::kRight), "  \u8a13");
  EXPECT_EQ(Pad("long", 2, Align::kLeft), "long");
}

TEST(TextTest, AsciiForTerminalsWithNothingElse) {
  EXPECT_EQ(ToAscii("K\u00f6ln \u8a13 e\u0301"), "K?ln ? ?");
}

}  // namespace
}  // namespace concert::ctl
