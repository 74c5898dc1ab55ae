// SQLite's prepared statements, as the tuning store uses them.
#ifndef CONCERT_DAEMON_TUNING_STORE_STATEMENT_H_
#define CONCERT_DAEMON_TUNING_STORE_STATEMENT_H_

#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace concert::daemon {

// Columns and parameters are bound and read in order. Not thread-safe.
class StoreStatement {
 public:
  StoreStatement(sqlite3* db, const std::string& sql) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr);
  }
  ~StoreStatement() { sqlite3_finalize(statement_); }
  StoreStatement(const StoreStatement&) = delete;
  StoreStatement& operator=(const StoreStatement&) = delete;

  StoreStatement& Bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  StoreStatement& Bind(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  StoreStatement& Bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }

  // True: there is a row to read.
  bool Step() {
    read_ = 0;
    if (statement_ == nullptr) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  bool failed() const { return code_ != SQLITE_ROW && code_ != SQLITE_DONE; }

  // The next column. A value of another type, or beyond `max`, makes the whole row invalid.
  uint64_t ReadUnsigned(uint64_t max) {
    const int column = read_++;
    const int64_t value = sqlite3_column_int64(statement_, column);
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER || value < 0 ||
        static_cast<uint64_t>(value) > max) {
      return Invalid("a number is missing, negative or too large");
    }
    return static_cast<uint64_t>(value);
  }
  float ReadTime() {
    const int column = read_++;
    const int type = sqlite3_column_type(statement_, column);
    const double value = sqlite3_column_double(statement_, column);
    if ((type != SQLITE_FLOAT && type != SQLITE_INTEGER) || !(value >= 0 && value < 1e12)) {
      return static_cast<float>(Invalid("a time is missing, negative or too large"));
    }
    return static_cast<float>(value);
  }
  std::string ReadText() {
    const int column = read_++;
    if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) {
      Invalid("a text is missing");
      return "";
    }
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    const int bytes = sqlite3_column_bytes(statement_, column);
    return text == nullptr ? "" : std::string(text, static_cast<size_t>(bytes));
  }
  template <typename T>
  T ReadName(std::optional<T> (*parse)(std::string_view)) {
    const std::optional<T> value = parse(ReadText());
    if (!value) Invalid("a name is not one of ours");
    return value.value_or(T{});
  }
  template <typename T>
  T ReadJson(absl::StatusOr<T> (*parse)(std::string_view)) {
    const absl::StatusOr<T> value = parse(ReadText());
    if (!value.ok() && status_.ok()) status_ = value.status();
    return value.value_or(T());
  }
  double ReadDouble() {
    const int column = read_++;
    const int type = sqlite3_column_type(statement_, column);
    if (type != SQLITE_FLOAT && type != SQLITE_INTEGER) Invalid("a number is missing");
    return sqlite3_column_double(statement_, column);
  }
  const absl::Status& status() const { return status_; }  // of what was read
  // Of the row that was read; the next one begins well.
  absl::Status TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

 private:
  uint64_t Invalid(const char* why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(why);
    return 0;
  }

  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK, bound_ = 0, read_ = 0;
  absl::Status status_;
};

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_STATEMENT_H_
