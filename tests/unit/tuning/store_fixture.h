// A test with a folder for a tuning store, which goes with it.
#ifndef CONCERT_TESTS_UNIT_TUNING_STORE_FIXTURE_H_
#define CONCERT_TESTS_UNIT_TUNING_STORE_FIXTURE_H_

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

#include "tests/support/temp_folder.h"

namespace concert::daemon {

class StoreFixture : public testing::Test {
 protected:
  // Runs SQL on the file behind the store's back.
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_free(error);
    sqlite3_close(db);
  }

  const test::TempFolder temporary_;
  const std::string folder_ = temporary_.path(), path_ = folder_ + "/tuning.sqlite3";
};

}  // namespace concert::daemon

#endif  // CONCERT_TESTS_UNIT_TUNING_STORE_FIXTURE_H_
