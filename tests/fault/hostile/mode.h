// What concert_hostile can be: an attacker, or a witness of what attacks do to others. One process
// each; hostile_suite.py starts them and judges. Modes of attack are for tests, not for nodes that
// others use.
#ifndef CONCERT_TESTS_FAULT_HOSTILE_MODE_H_
#define CONCERT_TESTS_FAULT_HOSTILE_MODE_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace concert::test {

struct Orders {
  std::string socket;
  std::chrono::steady_clock::time_point end;  // when to be done
  double seconds = 0;                         // witnesses: how long to measure, once told to go
  int count = 0;                              // sessions, buffers, or percent: see Mode::count

  bool Over() const { return std::chrono::steady_clock::now() >= end; }
};

struct Mode {
  const char* name;
  const char* about;
  const char* count;  // what Orders::count means; null: nothing
  int (*run)(const Orders& orders);
};

// Ops and waits: what a session can do through its ring.
int Refuse(const Orders& orders);
int Kinds(const Orders& orders);
int Wakes(const Orders& orders);
int Flood(const Orders& orders);
int Offers(const Orders& orders);
int Opens(const Orders& orders);
int Blocked(const Orders& orders);

// Connections, sessions and memory: what anybody can do through the socket.
int Silent(const Orders& orders);
int Mappings(const Orders& orders);
int Hold(const Orders& orders);
int Handles(const Orders& orders);
int Churn(const Orders& orders);
int Exhaust(const Orders& orders);
int Seal(const Orders& orders);
// Only harmful when it is killed: registers and runs programs.
int Programs(const Orders& orders);

// Each does something ordinary again and again and prints what it took as one line of JSON.
int WitnessCopy(const Orders& orders);
int WitnessGemm(const Orders& orders);
int WitnessReduce(const Orders& orders);
int WitnessConnect(const Orders& orders);
int WitnessSealed(const Orders& orders);
int Burn(const Orders& orders);

// What attackers and a witness of their user seal at the same time: one of a few contents.
inline constexpr uint64_t kContestedWords = 8192, kContestedContents = 4;
inline constexpr uint64_t ContestedWord(uint64_t contents, uint64_t index) {
  return (contents % kContestedContents + 1) * 0x9e3779b97f4a7c15 + index;
}

// Tells who started this process that the attack is set up, or that a witness is ready to go.
void SayReady();
// Tells who started this process what the daemon did that it must not. The first few count.
void Complain(const std::string& what);

}  // namespace concert::test

#endif  // CONCERT_TESTS_FAULT_HOSTILE_MODE_H_
