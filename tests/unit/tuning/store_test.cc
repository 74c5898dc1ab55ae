#include "daemon/tuning/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "tests/support/seed.h"
#include "tests/unit/tuning/rows_for_test.h"
#include "tests/unit/tuning/store_fixture.h"

namespace concert::daemon::store_test {
namespace {

using policies::TunedKey;
using PutResult = Store::PutResult;
using testing::HasSubstr;

const Environment kHere{"0123456789abcdef", "a GPU"};
const Environment kElsewhere{"fedcba9876543210", "another GPU"};

class StoreTest : public StoreFixture {
 protected:
  std::unique_ptr<Store> Open() { return Store::Open(path_); }
  PutResult Put(Store& store, const StoredRow& row, const Environment& environment = kHere) {
    const auto result = store.Put(environment, row);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(PutResult::kKept);
  }
};

TEST_F(StoreTest, ARowComesBackFromTheFileAsItWas) {
  const StoredRow row = RowFor(64);
  EXPECT_EQ(Put(*Open(), row), PutResult::kInserted);
  const auto store = Open();
  EXPECT_TRUE(store->persistent());
  const std::optional<StoredRow> got = store->Get(kHere, row.tuned.key);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->tuned.key, row.tuned.key);
  EXPECT_EQ(got->tuned.variant, row.tuned.variant);
  EXPECT_EQ(got->tuned.median_us, row.tuned.median_us);
  EXPECT_EQ(got->tuned.spread_us, row.tuned.spread_us);
  EXPECT_EQ(got->tuned.samples, row.tuned.samples);
  EXPECT_EQ(got->runner_up, row.runner_up);
  EXPECT_EQ(got->runner_up_us, row.runner_up_us);
  EXPECT_EQ(got->measured_at_s, row.measured_at_s);
  EXPECT_FALSE(got->stale);
  const auto table = store->LoadTable(kHere);
  const policies::TunedRow* found = table->Find(row.tuned.key);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->variant, row.tuned.variant);
}

TEST_F(StoreTest, AnEnvironmentSeesItsOwnRowsOnly) {
  const auto store = Open();
  Put(*store, RowFor(64), kElsewhere);
  EXPECT_FALSE(store->Get(kHere, RowFor(64).tuned.key));
  EXPECT_TRUE(store->LoadTable(kHere)->empty());
  EXPECT_EQ(store->LoadTable(kElsewhere)->rows().size(), 1u);
}

TEST(EnvironmentTest, EverythingThatTimesDependOnCounts) {
  DeviceInfo device;
  device.name = "NVIDIA H200";
  device.software = "driver 580, CUDA 13.0, cuBLASLt 13.1.0";
  const std::string name = EnvironmentOf(device).name;
  EXPECT_EQ(name.size(), 16u);
  EXPECT_EQ(EnvironmentOf(device).name, name);
  for (const auto& change : std::vector<std::function<void(DeviceInfo&)>>{
           [](DeviceInfo& info) { info.name = "NVIDIA H100"; },
           [](DeviceInfo& info) { info.compute_capability = 90; },
           [](DeviceInfo& info) { info.model.sm_count = 131; },
           [](DeviceInfo& info) { info.software = "driver 581, CUDA 13.0, cuBLASLt 13.1.0"; }}) {
    DeviceInfo other = device;
    change(other);
    EXPECT_NE(EnvironmentOf(other).name, name);
  }
}

TEST_F(StoreTest, ANewTimeReplacesAnOldOneOnlyBeyondNoise) {
  const auto store = Open();
  EXPECT_EQ(Put(*store, RowFor(64, 10, 0.6f)), PutResult::kInserted);
  // The spreads together are 1.0.
  EXPECT_EQ(Put(*store, RowFor(64, 9.1f, 0.8f)), PutResult::kKept);
  EXPECT_EQ(store->Get(kHere, RowFor(64).tuned.key)->tuned.median_us, 10);
  EXPECT_EQ(Put(*store, RowFor(64, 8.9f, 0.8f)), PutResult::kReplaced);
  EXPECT_EQ(store->Get(kHere, RowFor(64).tuned.key)->tuned.median_us, 8.9f);
  EXPECT_EQ(Put(*store, RowFor(64, 20, 0.1f)), PutResult::kKept);
}

TEST_F(StoreTest, AStaleRowIsInNoTableAndGivesWayToAnyMeasurement) {
  const auto store = Open();
  Put(*store, RowFor(64));
  EXPECT_TRUE(store->MarkStale(kHere, RowFor(64).tuned.key).ok());
  EXPECT_TRUE(absl::IsNotFound(store->MarkStale(kHere, RowFor(65).tuned.key)));
  EXPECT_TRUE(store->LoadTable(kHere)->empty());
  EXPECT_EQ(store->Rows(kHere).size(), 1u);
  store->Get(kHere, RowFor(64).tuned.key);
  EXPECT_EQ(store->stale_hits(), 1u);
  EXPECT_EQ(Put(*store, RowFor(64, 50)), PutResult::kReplaced);
  EXPECT_EQ(store->LoadTable(kHere)->rows()[0].median_us, 50);
}

TEST_F(StoreTest, ACorruptFileIsMovedAsideEveryTime) {
  for (int i = 1; i <= 2; ++i) {
    std::ofstream(path_) << std::string(8192, 'x');
    const auto store = Open();
    EXPECT_TRUE(store->persistent());
    EXPECT_EQ(store->quarantined(), path_ + ".corrupt-" + std::to_string(i));
    EXPECT_EQ(std::filesystem::file_size(store->quarantined()), 8192u);
    EXPECT_EQ(Put(*store, RowFor(64)), PutResult::kInserted);
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
  }
}

TEST_F(StoreTest, ADamagedPageIsFoundWhenTheFileIsOpened) {
  {
    const auto store = Open();
    for (uint32_t m = 1; m <= 500; ++m) Put(*store, RowFor(m));
  }
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (int page = 3; page < 8; ++page) {
    file.seekp(page * 4096);
    file << std::string(64, '\xee');
  }
  file.close();
  EXPECT_NE(Open()->quarantined(), "");
}

// The rows are all right, and only a write would stumble.
TEST_F(StoreTest, AnIndexThatDisagreesWithItsTableIsFoundWhenTheFileIsOpened) {
  {
    const auto store = Open();
    for (uint32_t m = 1; m <= 500; ++m) Put(*store, RowFor(m));
  }
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr size_t kPage = 4096;
  constexpr char kIndexLeaf = 0x0a;  // sqlite.org/fileformat2.html, section 1.6
  size_t damaged = 0;
  for (size_t page = kPage; page < bytes.size() && damaged == 0; page += kPage) {
    const size_t name = bytes.find(kHere.name, page);
    if (bytes[page] != kIndexLeaf || name >= page + kPage) continue;
    file.seekp(static_cast<std::streamoff>(damaged = name));
    file << '!';
  }
  ASSERT_GT(damaged, 0u);
  file.close();
  EXPECT_NE(Open()->quarantined(), "");
}

TEST_F(StoreTest, AnotherProgramsDatabaseIsNotOurs) {
  for (const char* sql :
       {"CREATE TABLE tuned(id INTEGER)", "PRAGMA user_version = 77; CREATE TABLE x(y)"}) {
    std::filesystem::remove(path_);
    Sql(sql);
    EXPECT_NE(Open()->quarantined(), "") << sql;
  }
  // Our tables and something that would run beside them.
  std::filesystem::remove(path_);
  Open();
  Sql("CREATE TRIGGER t AFTER INSERT ON tuned BEGIN DELETE FROM environments; END");
  EXPECT_NE(Open()->quarantined(), "");
}

TEST_F(StoreTest, WithoutAUsableFileItWorksInMemory) {
  for (const std::string& path : {folder_ + "/none/tuning.sqlite3", folder_}) {
    const auto store = Store::Open(path);
    EXPECT_FALSE(store->persistent());
    EXPECT_THAT(store->warning(), HasSubstr(path));
    EXPECT_EQ(Put(*store, RowFor(64)), PutResult::kInserted);
    EXPECT_EQ(store->LoadTable(kHere)->rows().size(), 1u);
  }
}

// Every row but one is wrong in one way.
TEST_F(StoreTest, RowsThatCannotBeRightAreSkippedAndCounted) {
  Open();
  const std::string good =
      "VALUES(NULL, '0123456789abcdef', %m, 4096, 1024, 1, 'bf16', 0, 'eight', 'streams', "
      "'{\"source\":\"cublaslt\",\"dtype\":\"bf16\"}', 10.0, 1.0, 16, "
      "'{\"source\":\"none\",\"dtype\":\"bf16\"}', 0.0, 1790000000, 0)";
  const std::pair<const char*, const char*> faults[] = {
      {"4096", "0"},
      {"4096", "-5"},
      {"4096", "99999999999"},
      {"4096", "'many'"},
      {"4096", "NULL"},
      {"'bf16', 0", "'int4', 0"},
      {"'eight'", "'nine'"},
      {"'eight'", "'solo'"},
      {"'streams'", "x'00ff'"},
      {"10.0", "0.0"},
      {"10.0", "-1.0"},
      {"10.0", "9e99"},
      {"10.0", "NULL"},  // what SQLite makes of NaN
      {"10.0", "'fast'"},
      {"1.0, 16", "1.0, 0"},
      {"1.0, 16", "-1.0, 16"},
      {"\"cublaslt\"", "\"magic\""},
      {"\"cublaslt\"", "\"none\""},
      {"\"dtype\":\"bf16\"}', 10", "\"dtype\":\"fp16\"}', 10"},
      {"\"dtype\":\"bf16\"}', 10", "\"dtype\":\"bf16\",\"tile_m\":4294967296}', 10"},
      {"\"dtype\":\"bf16\"}', 10", "\"dtype\":\"bf16\",\"stages\":-1}', 10"},
      {"\"dtype\":\"bf16\"}', 10", "\"dtype\":\"bf16\",\"stages\":[[[[1]]]]}', 10"},
      {"'{\"source\":\"cublaslt\",\"dtype\":\"bf16\"}'", "'{'"},
      {"'{\"source\":\"cublaslt\",\"dtype\":\"bf16\"}'", "replace(hex(zeroblob(50000)), '0', '[')"},
      {"'{\"source\":\"cublaslt\",\"dtype\":\"bf16\"}'", "zeroblob(9000000)"},
      {"1790000000, 0", "1790000000, 7"},
  };
  int m = 1;
  for (const auto& [from, to] : faults) {
    std::string row = good;
    row.replace(row.find(from), std::string(from).size(), to);
    row.replace(row.find("%m"), 2, std::to_string(m++));
    Sql("INSERT INTO tuned " + row);
  }
  std::string row = good;
  row.replace(row.find("%m"), 2, "1000");
  Sql("INSERT INTO tuned " + row);

  const auto store = Open();
  EXPECT_EQ(store->quarantined(), "");
  const auto table = store->LoadTable(kHere);
  ASSERT_EQ(table->rows().size(), 1u);
  EXPECT_EQ(table->rows()[0].key.problem.m, 1000u);
  EXPECT_EQ(store->invalid_rows(), std::size(faults));
  // A measurement takes the place of an invalid row.
  StoredRow fresh = RowFor(10, 500);
  EXPECT_EQ(Put(*store, fresh), PutResult::kReplaced);
  EXPECT_TRUE(store->Get(kHere, fresh.tuned.key));
}

TEST_F(StoreTest, RowsThatCannotBeRightAreRefused) {
  const auto store = Open();
  for (const auto& spoil : std::vector<std::function<void(StoredRow&)>>{
           [](StoredRow& row) { row.tuned.median_us = NAN; },
           [](StoredRow& row) { row.tuned.spread_us = std::numeric_limits<float>::infinity(); },
           [](StoredRow& row) { row.tuned.samples = 0; },
           [](StoredRow& row) { row.tuned.key.problem.k = 0; },
           [](StoredRow& row) { row.tuned.key.problem.dtype = static_cast<policies::Dtype>(99); },
           [](StoredRow& row) { row.tuned.key.form = static_cast<policies::Form>(9); },
           [](StoredRow& row) { row.tuned.key.sm_budget = 60'000; },
           [](StoredRow& row) { row.tuned.variant.tile_m = 60'000; },
           [](StoredRow& row) { row.runner_up.dtype = policies::Dtype::kFp32; }}) {
    StoredRow row = RowFor(64);
    spoil(row);
    EXPECT_TRUE(absl::IsInvalidArgument(store->Put(kHere, row).status()));
  }
  EXPECT_TRUE(store->Rows(kHere).empty());
}

// Flips bytes of a good store: whatever comes out, nothing crashes and rows are plausible.
TEST(RowTest, ANumberBeyondItsLimitIsToldFromIt) {
  const auto said = [](auto change) {
    StoredRow row = RowFor(64);
    change(row);
    return std::string(CheckRow(row).message());
  };
  EXPECT_EQ(said([](StoredRow& row) { row.tuned.key.problem.m = 16'777'217; }),
            "m is 16777217; it must be 1 to 16777216");
  EXPECT_EQ(said([](StoredRow& row) { row.tuned.samples = 1'000'001; }),
            "samples is 1000001; it must be 1 to 1000000");
  EXPECT_EQ(said([](StoredRow& row) { row.measured_at_s = 100'000'000'001; }),
            "measured_at_s is 100000000001; it must be 0 to 100000000000");
  EXPECT_EQ(said([](StoredRow& row) { row.tuned.median_us = 0.5e-3f; }),
            "median_us is 0.000500000024; it must be 0.001 to 100000000");
}

TEST_F(StoreTest, SurvivesRandomDamage) {
  const uint32_t seed = test::Seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  {
    const auto store = Open();
    for (uint32_t m = 1; m <= 50; ++m) Put(*store, RowFor(m));
  }
  std::ifstream in(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (int round = 0; round < 50; ++round) {
    std::string bad = good;
    for (int i = 0; i < 1 << (round % 6); ++i)
      bad[random() % bad.size()] = static_cast<char>(random());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    std::ofstream(path_, std::ios::binary) << bad;
    const auto store = Open();
    for (const StoredRow& row : store->Rows(kHere)) EXPECT_TRUE(CheckRow(row).ok());
    Put(*store, RowFor(1000));
  }
}

TEST_F(StoreTest, ReadersAndWritersOfSeveralConnectionsGetAlong) {
  Open();
  std::vector<std::thread> threads;
  for (uint32_t writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      const auto store = Open();
      for (uint32_t i = 0; i < 50; ++i) Put(*store, RowFor(1 + 2 * i + writer));
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      const auto store = Open();
      size_t rows = 0;
      while (rows < 100) {
        const size_t now = store->LoadTable(kHere)->rows().size();
        ASSERT_GE(now, rows);
        rows = now;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(VariantJsonTest, EveryFieldSurvivesAndNothingElseGetsIn) {
  policies::Variant variant{.source = policies::Variant::Source::kGroup,
                            .dtype = policies::Dtype::kFp16};
  uint32_t value = 1;
  for (const VariantField& field : VariantFields()) field.set(variant, value++);
  EXPECT_EQ(VariantFromJson(VariantToJson(variant)).value(), variant);
  for (const std::string& bad : {std::string("[]"), std::string("{}"), std::string(5000, '['),
                                 std::string("{\"source\":1}")}) {
    EXPECT_FALSE(VariantFromJson(bad).ok());
  }
}

}  // namespace
}  // namespace concert::daemon::store_test
