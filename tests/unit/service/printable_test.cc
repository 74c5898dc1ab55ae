#include "daemon/service/printable.h"

#include <gtest/gtest.h>

namespace concert::daemon {
namespace {

TEST(PrintableTest, NamesInAnyScriptStayAsTheyAre) {
  for (const char* name : {"server-a", "", "say \"hi\"", "K\u00f6ln", "\u8a13\u7df4",
                           "\u0645\u062f\u0644", "e\u0301", "\U0001f680"}) {
    EXPECT_EQ(Printable(name), name);
  }
}

TEST(PrintableTest, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(Printable("a\x1b[2Jb\x7f\r\n"), "a\\x1b[2Jb\\x7f\\x0d\\x0a");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\u009b31m"), "\\xc2\\x9b31m");       // CSI as one character
  EXPECT_EQ(Printable("\u202egnp"), "\\xe2\\x80\\xaegnp");  // right to left from here on
  EXPECT_EQ(Printable("a\u200bb"), "a\\xe2\\x80\\x8bb");    // zero width
  EXPECT_EQ(Printable("\ufeffx\U000e0041"), "\\xef\\xbb\\xbfx\\xf3\\xa0\\x81\\x81");
}

TEST(PrintableTest, EscapesCannotBeForged) { EXPECT_EQ(Printable("\\x1b"), "\\\\x1b"); }

TEST(PrintableTest, BytesThatAreNoUtf8AreEscapedOneByOne) {
  EXPECT_EQ(Printable("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(Printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  EXPECT_EQ(Printable("a\xe8\xa8"), "a\\xe8\\xa8");                  // cut off
  EXPECT_EQ(Printable("\xe8\u00f6"), "\\xe8\u00f6");                 // the next character is whole
}

}  // namespace
}  // namespace concert::daemon
