#include <gtest/gtest.h>

#include <string_view>

#include "tests/fault/child.h"

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--child") {
    return concert::test::RunChild({argv + 2, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
