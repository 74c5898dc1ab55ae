// The tables of the tuning store.
#ifndef CONCERT_DAEMON_TUNING_STORE_SCHEMA_H_
#define CONCERT_DAEMON_TUNING_STORE_SCHEMA_H_

#include "absl/status/status.h"
#include "daemon/tuning/environment.h"

namespace concert::daemon {

class StoreDatabase;

// Makes the tables in an empty file, and those that came later in one of ours; DATA_LOSS for a file
// with anything else, and for a corrupt one. After an error a transaction may be open.
absl::Status CheckSchema(StoreDatabase& database);

// Rows and curves name their environment; this keeps its description. Part of a transaction.
absl::Status WriteEnvironment(const Environment& environment, StoreDatabase& database);

}  // namespace concert::daemon

#endif  // CONCERT_DAEMON_TUNING_STORE_SCHEMA_H_
