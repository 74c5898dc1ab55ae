#include "client/ctl/trace_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "client/ctl/trace_file.h"

namespace concert::ctl {
namespace {

using nlohmann::json;
using perfetto::TrackEvent;
using testing::HasSubstr;
using testing::Not;

std::string Written(const TracePage& page) {
  EXPECT_EQ(page.error(), "");
  std::ostringstream out;
  page.Write(out);
  return out.str();
}

// The columns that the page holds.
std::map<std::string, json> Columns(const std::string& page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" data-column=\"";
  std::map<std::string, json> columns;
  for (size_t at = 0; (at = page.find(kBegin, at)) != page.npos;) {
    const size_t name = at + kBegin.size(), name_end = page.find('"', name);
    const size_t end = page.find("</script>", at);
    const std::string text = page.substr(name_end + 2, end - name_end - 2);
    columns[page.substr(name, name_end - name)] = json::parse(text);
    at = end;
  }
  return columns;
}

// Two launches on a lane: two ops of one queue, then one of another session, which fails.
Recording ThreeOps() {
  Recording recording;
  recording.client_names = {{3, "server-a"}};
  recording.gpu_names = {{0, "H200"}};
  for (int i = 0; i < 3; ++i) {
    v1::TracedOp& op = recording.ops.emplace_back();
    const uint64_t at_ns = 1'000'000'000'000 + (i == 2 ? 100'000 : 0);
    op.set_session_id(i == 2 ? 4 : 3);
    op.set_kind("gemm");
    op.set_status(i == 2 ? "INTERNAL" : "OK");
    op.set_plan_id(i == 2 ? 8 : 7);
    op.set_reason("together is predicted faster");
    op.set_lane(2);
    op.set_admitted_at_ns(at_ns);
    op.set_ready_at_ns(at_ns + 500);
    op.set_launched_at_ns(at_ns + 1000);
    op.set_started_at_ns(at_ns + 2000);
    op.set_finished_at_ns(at_ns + 3000 + i);
  }
  v1::Plan& plan = recording.plans.emplace_back();
  plan.set_plan_id(7);
  return recording;
}

TEST(TracePageTest, HasEverySliceAndWhatJoinsThem) {
  Recording recording = ThreeOps();
  TracePage page;
  MakeTrace(recording, [&](const auto& packet) { page.Add(packet); });
  EXPECT_EQ(page.op_count(), 3u);
  const std::map<std::string, json> columns = Columns(Written(page));
  const json& strings = columns.at("strings");
  const json& head = columns.at("head")[0];
  // By track: queue 0 of session 3, that of session 4, lane 2.
  std::vector<std::string> tracks, names;
  for (const json& track : head["tracks"]) {
    if (track[2] > 0) tracks.push_back(strings[track[0].get<int>()]);
  }
  EXPECT_EQ(tracks, (std::vector<std::string>{"queue 0", "queue 0", "lane 2"}));
  for (const json& name : columns.at("name")) names.push_back(strings[name.get<int>()]);
  EXPECT_EQ(names, (std::vector<std::string>{"gemm", "gemm", "gemm INTERNAL", "2 x gemm", "gemm"}));
  EXPECT_EQ(head["duration"], 103'002);
  EXPECT_EQ(columns.at("gap"), json({0, 0, 100'000, 2000, 98'999}));
  EXPECT_EQ(columns.at("length"), json({3000, 1, 3002, 1001, 1002}));
  EXPECT_EQ(columns.at("op"), json({0, 1, 2}));
  EXPECT_EQ(columns.at("launch"), json({3, 3, 4}));
  EXPECT_EQ(columns.at("submit"), json({0, 0, 100'000}));

  const json& shape = head["shapes"][columns.at("shape")[0].get<int>()];
  std::map<std::string, json> arguments;
  for (size_t i = 0; i < shape.size(); ++i) {
    const json& value = columns.at(columns.at("shape")[0].dump() + "." + std::to_string(i))[0];
    arguments[strings[shape[i][0].get<int>()]] =
        shape[i][1].get<bool>() ? strings[value.get<int>()] : value;
  }
  EXPECT_EQ(arguments["submitted to ready, us"], 0.5);
  EXPECT_EQ(arguments["plan"], 7);
  EXPECT_EQ(arguments["reason"], "together is predicted faster");
}

TEST(TracePageTest, NamesAreJsonThatNoHtmlParserTakesForMarkup) {
  Recording recording = ThreeOps();
  const std::string name = "</script><script>\"'<!--\u202E\x01\u2028";
  recording.client_names[3] = name;
  TracePage page;
  MakeTrace(recording, [&](const auto& packet) { page.Add(packet); });
  const std::string html = Written(page);
  const std::map<std::string, json> columns = Columns(html);
  EXPECT_THAT(columns.at("strings"), testing::Contains("session 3: " + name));
  EXPECT_THAT(html, Not(HasSubstr("</script><script>\"'")));
  // The data is ASCII.
  const size_t data = html.find("data-column"), script = html.find("<script nonce=");
  EXPECT_TRUE(std::all_of(html.begin() + data, html.begin() + script,
                          [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(TracePageTest, ItsScriptAndStyleAloneHaveItsNonce) {
  std::set<std::string> nonces;
  for (int i = 0; i < 2; ++i) {
    const std::string html = Written(TracePage());
    const size_t at = html.find("script-src 'nonce-") + 18;
    const std::string nonce = html.substr(at, html.find('\'', at) - at);
    EXPECT_EQ(nonce.size(), 32u);
    EXPECT_THAT(html, HasSubstr("default-src 'none'; script-src 'nonce-" + nonce +
                                "'; style-src 'nonce-" + nonce + "'"));
    EXPECT_THAT(html, HasSubstr("<script nonce=\"" + nonce + "\">"));
    EXPECT_THAT(html, HasSubstr("<style nonce=\"" + nonce + "\">"));
    EXPECT_THAT(html, Not(HasSubstr("@NONCE@")));
    EXPECT_THAT(html, Not(HasSubstr("src=")));
    EXPECT_THAT(html, Not(HasSubstr("://")));
    nonces.insert(nonce);
  }
  EXPECT_EQ(nonces.size(), 2u);
}

// What the page says after these packets: a track 1 named "t", and what `add` makes.
std::string ErrorOf(const std::function<void(TracePage&)>& add) {
  TracePage page;
  perfetto::TracePacket packet;
  packet.mutable_track_descriptor()->set_uuid(1);
  packet.mutable_track_descriptor()->set_name("t");
  page.Add(packet);
  add(page);
  EXPECT_NE(page.error(), "");
  return page.error();
}

perfetto::TracePacket Event(TrackEvent::Type type, uint64_t track, uint64_t at_ns) {
  perfetto::TracePacket packet;
  packet.set_timestamp(at_ns);
  packet.mutable_track_event()->set_type(type);
  packet.mutable_track_event()->set_track_uuid(track);
  packet.mutable_track_event()->set_name("e");
  return packet;
}

TEST(TracePageTest, ATraceThatIsNotConcertctlsIsRefused) {
  constexpr auto kBegin = TrackEvent::TYPE_SLICE_BEGIN, kEnd = TrackEvent::TYPE_SLICE_END;
  EXPECT_EQ(ErrorOf([](TracePage& page) { page.Add(Event(kBegin, 2, 0)); }),
            "event e is on no track");
  EXPECT_EQ(ErrorOf([](TracePage& page) { page.Add(Event(kEnd, 1, 0)); }),
            "a slice of track t ends and did not begin");
  EXPECT_EQ(ErrorOf([](TracePage& page) {
              page.Add(Event(kBegin, 1, 5));
              page.Add(Event(kEnd, 1, 4));
            }),
            "a slice of track t ends and did not begin");
  EXPECT_EQ(ErrorOf([](TracePage& page) {
              page.Add(Event(kBegin, 1, 5));
              page.Add(Event(kBegin, 1, 6));
            }),
            "slices of track t overlap");
  EXPECT_EQ(ErrorOf([](TracePage& page) { page.Add(Event(TrackEvent::TYPE_UNSPECIFIED, 1, 0)); }),
            "event e is neither a slice nor an instant");
  EXPECT_EQ(ErrorOf([](TracePage& page) {
              perfetto::TracePacket packet;
              packet.mutable_track_descriptor()->set_uuid(1);
              page.Add(packet);
            }),
            "there are two tracks 1");
}

TEST(TracePageTest, WhatItKeepsIsBounded) {
  EXPECT_EQ(ErrorOf([](TracePage& page) {
              for (size_t i = 0; i <= TracePage::kMaxSlices && page.error().empty(); ++i) {
                page.Add(Event(TrackEvent::TYPE_SLICE_BEGIN, 1, i));
                page.Add(Event(TrackEvent::TYPE_SLICE_END, 1, i));
              }
            }),
            "more than 2097152 slices: record for less time");
  EXPECT_EQ(ErrorOf([](TracePage& page) {
              perfetto::TracePacket packet;
              for (size_t i = 0; i < TracePage::kMaxTracks; ++i) {
                packet.mutable_track_descriptor()->set_uuid(2 + i);
                page.Add(packet);
              }
            }),
            "more than 131072 lanes and queues: record fewer");
}

TEST(TracePageTest, TextBeyondItsBoundIsLeftOut) {
  TracePage page;
  perfetto::TracePacket packet;
  const size_t count = TracePage::kMaxTextBytes / (1 << 20) + 2;
  for (size_t i = 0; i < count; ++i) {
    packet.mutable_track_descriptor()->set_uuid(1 + i);
    packet.mutable_track_descriptor()->set_name(std::string(1 << 20, static_cast<char>('0' + i)));
    page.Add(packet);
  }
  const std::map<std::string, json> columns = Columns(Written(page));
  EXPECT_LT(columns.at("strings").size(), count);
  EXPECT_EQ(columns.at("strings")[0], "(left out)");
  EXPECT_EQ(columns.at("head")[0]["tracks"].size(), count);
  EXPECT_EQ(columns.at("head")[0]["tracks"].back()[0], 0);
}

}  // namespace
}  // namespace concert::ctl
