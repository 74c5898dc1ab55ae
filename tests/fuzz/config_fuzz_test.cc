// Junk configurations: valid files with bytes, words and lines changed at random. Each is refused
// with a sentence that names the file, or is a configuration that reads back as itself.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "daemon/config/config.h"
#include "tests/support/seed.h"

namespace concert::daemon {
namespace {

constexpr int kFiles = 500;
constexpr std::array kWords = {"[",
                               "[[",
                               "]",
                               "{",
                               "\"",
                               "\"\"\"",
                               "'",
                               "=",
                               "#",
                               "\n",
                               "\0",
                               "\\u",
                               "-1",
                               "0",
                               "9223372036854775808",
                               "1e400",
                               "nan",
                               "0x",
                               "true",
                               "1979-05-27T07:32:00",
                               "device",
                               "spin_us = ",
                               "socket = \"\"\n",
                               "\xff\xfe",
                               "\xef\xbb\xbf",
                               "a.b.c = 1\n"};

std::string Junk(std::mt19937& random) {
  std::string text = RenderToml(LoadedConfig());
  const auto place = [&] { return text.empty() ? 0 : random() % text.size(); };
  for (uint32_t changes = 1 + random() % 8; changes > 0; --changes) {
    switch (random() % 5) {
      case 0:
        text.insert(place(), kWords[random() % kWords.size()]);
        break;
      case 1:
        text.erase(place(), random() % 40);
        break;
      case 2:
        if (!text.empty()) text[place()] = static_cast<char>(random());
        break;
      case 3:  // a part of it once more
        text.insert(place(), text.substr(place(), random() % 200));
        break;
      default:  // deep nesting
        text.insert(place(), std::string(random() % 2000, random() % 2 == 0 ? '[' : '{'));
    }
  }
  return text;
}

TEST(ConfigFuzzTest, JunkIsRefusedWithASentenceOrIsAConfiguration) {
  std::mt19937 random(test::Seed());
  int accepted = 0;
  for (int i = 0; i < kFiles; ++i) {
    const std::string text = Junk(random);
    SCOPED_TRACE(testing::Message() << "file " << i << ":\n" << text);
    LoadedConfig loaded;
    if (const absl::Status status = ApplyToml(text, "junk.toml", loaded); !status.ok()) {
      EXPECT_TRUE(std::string(status.message()).starts_with("junk.toml")) << status;
      continue;
    }
    ++accepted;
    LoadedConfig again;
    const absl::Status status = ApplyToml(RenderToml(loaded), "again.toml", again);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(again.config, loaded.config);
  }
  EXPECT_GT(accepted, 0);       // not all junk is mean enough
  EXPECT_LT(accepted, kFiles);  // and some is
}

}  // namespace
}  // namespace concert::daemon
