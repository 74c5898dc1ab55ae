#include "client/ctl/top/state.h"

#include <algorithm>
#include <charconv>

namespace concert::ctl {
namespace {

constexpr size_t kMaxTyped = 64;

std::optional<uint32_t> NumberIn(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

void Scroll(int rows, TopState* state) {
  state->scroll = std::clamp(state->scroll + rows, 0, state->last_scroll);
}

void TurnSort(int by, TopState* state) {
  const int turned = static_cast<int>(state->sort) + by + kSessionColumnCount;
  state->sort = static_cast<SessionColumn>(turned % kSessionColumnCount);
  state->reversed = false;
}

void TurnPriority(TopState* state) {
  static const std::string kInTurn[] = {"", "high", "normal", "low"};
  const auto now = std::find(std::begin(kInTurn), std::end(kInTurn), state->priority);
  state->priority = kInTurn[(now - std::begin(kInTurn) + 1) % std::size(kInTurn)];
}

void Ask(TopState::Prompt prompt, TopState* state) {
  state->prompt = prompt;
  state->typed.clear();
}

void Answer(const UidOf& uid_of, TopState* state) {
  if (state->prompt == TopState::Prompt::kSession) {
    state->session = state->typed;
  } else if (state->typed.empty()) {
    state->uid.reset();
  } else {
    const std::optional<uint32_t> number = NumberIn(state->typed);
    const std::optional<uint32_t> uid = number.has_value() ? number : uid_of(state->typed);
    if (!uid.has_value()) {
      state->message = "this machine has no user '" + state->typed + "'";
      return;
    }
    state->uid = uid;
  }
  state->prompt = TopState::Prompt::kNone;
  state->scroll = 0;
}

void PressAtPrompt(const Key& key, const UidOf& uid_of, TopState* state) {
  switch (key.kind) {
    case Key::Kind::kEnter:
      return Answer(uid_of, state);
    case Key::Kind::kEscape:
      state->prompt = TopState::Prompt::kNone;
      return;
    case Key::Kind::kBackspace:
      while (!state->typed.empty()) {  // the last character with all its bytes
        const char last = state->typed.back();
        state->typed.pop_back();
        if ((static_cast<unsigned char>(last) & 0xc0) != 0x80) break;
      }
      return;
    case Key::Kind::kText:
      if (state->typed.size() + key.text.size() <= kMaxTyped) state->typed += key.text;
      return;
    default:
      return;
  }
}

void PressLetter(char letter, TopState* state) {
  switch (letter) {
    case 'q':
      state->quit = true;
      break;
    case '?':
      state->help = true;
      break;
    case 's':
    case '>':
      TurnSort(1, state);
      break;
    case 'S':
    case '<':
      TurnSort(-1, state);
      break;
    case 'r':
      state->reversed = !state->reversed;
      break;
    case 'c':
      TurnPriority(state);
      state->scroll = 0;
      break;
    case 'f':
    case '/':
      Ask(TopState::Prompt::kSession, state);
      break;
    case 'u':
      Ask(TopState::Prompt::kUser, state);
      break;
    case 'h':
      state->plot = static_cast<Figure>((static_cast<int>(state->plot) + 1) % kFigureCount);
      break;
    case 'k':
      Scroll(-1, state);
      break;
    case 'j':
      Scroll(1, state);
      break;
    default:
      break;
  }
}

}  // namespace

void Press(const Key& key, const UidOf& uid_of, TopState* state) {
  state->message.clear();
  if (state->prompt != TopState::Prompt::kNone) return PressAtPrompt(key, uid_of, state);
  if (state->help) {
    state->help = false;
    state->quit = key.text == "q";
    return;
  }
  switch (key.kind) {
    case Key::Kind::kText:
      if (key.text.size() == 1) PressLetter(key.text[0], state);
      break;
    case Key::Kind::kEscape:
      state->session.clear();
      state->priority.clear();
      state->uid.reset();
      break;
    case Key::Kind::kUp:
      Scroll(-1, state);
      break;
    case Key::Kind::kDown:
      Scroll(1, state);
      break;
    case Key::Kind::kPageUp:
      Scroll(-state->page, state);
      break;
    case Key::Kind::kPageDown:
      Scroll(state->page, state);
      break;
    case Key::Kind::kHome:
      state->scroll = 0;
      break;
    case Key::Kind::kEnd:
      state->scroll = state->last_scroll;
      break;
    case Key::Kind::kEnter:
    case Key::Kind::kBackspace:
      break;
  }
}

void NoteShown(const Frame& frame, TopState* state) {
  state->page = std::max(1, frame.shown_count);
  state->last_scroll = std::max(0, frame.row_count - frame.shown_count);
  state->scroll = std::min(state->scroll, state->last_scroll);
}

}  // namespace concert::ctl
