// Finds the right word for one that was mistyped. Pure functions; thread-safe.
#ifndef CONCERT_PROTO_COMMAND_WORDS_H_
#define CONCERT_PROTO_COMMAND_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace concert::command {

// How many letters must be added, left out, changed or swapped with their neighbour to get from `a`
// to `b`. Takes |a| * |b| steps.
size_t EditDistance(std::string_view a, std::string_view b);

// "; did you mean 'status'?" with the candidate nearest to `word`; empty if none is near, or if
// `word` is absurdly long.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

// The variables that libconcert and the tools read. concertd's settings have one each besides.
std::vector<std::string> ClientVariables();

// A sentence for each variable of `environment` ("NAME=value", ended by null; null: none) that
// begins with CONCERT_, is none of `known` and is spelt nearly like one. Others may be somebody
// else's.
std::vector<std::string> MisspeltVariables(const char* const* environment,
                                           const std::vector<std::string>& known);

}  // namespace concert::command

#endif  // CONCERT_PROTO_COMMAND_WORDS_H_
