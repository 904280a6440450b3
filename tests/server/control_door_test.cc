// The control plane's door over its socket, as CONTROL.md says: how long requests may be, how many connections, and for how long.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/fuzz/daemon_fixture.h"
#include "tierd/server/control.h"

namespace tierd::server {
namespace {

using nlohmann::json;

struct Reply {
  unsigned status = 0;  // 0: the connection ended without one
  json body;
};

// A client on the loop's own thread: while it waits, the loop turns.
class Peer {
 public:
  Peer(boost::asio::io_context& loop, const std::string& path) : loop_(loop), fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  // All of it, or what is taken before the other side closes.
  void Send(std::string_view text) {
    for (int turns = 0; !text.empty() && turns < kTurns;) {
      const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return;
      if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
      else Turn(), ++turns;
    }
  }
  Reply Receive() {
    const bool head_came = Await([&] { return came_.find("\r\n\r\n") != std::string::npos; });
    if (!head_came) return {};
    const std::size_t head = came_.find("\r\n\r\n") + 4, length = came_.find("Content-Length: ");
    const std::size_t whole = head + (length < head ? std::strtoul(came_.c_str() + length + 16, nullptr, 10) : 0);
    if (!Await([&] { return came_.size() >= whole; })) return {};
    Reply reply{static_cast<unsigned>(std::strtoul(came_.c_str() + 9, nullptr, 10)), json::parse(came_.substr(head, whole - head), nullptr, false)};
    came_.erase(0, whole);
    return reply;
  }
  Reply Ask(const std::string& method, const std::string& target, const std::string& body = "") {
    Send(method + " " + target + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return Receive();
  }
  // Whether the other side has closed by now; a turn later.
  bool HasEnded() {
    Turn();
    char byte;
    const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  bool Closed() {
    (void)Await([] { return false; });
    return closed_;
  }

 private:
  static constexpr int kTurns = 10'000;
  void Turn() {
    loop_.restart();
    loop_.run_for(std::chrono::milliseconds(1));
  }
  template <typename Condition>
  bool Await(Condition condition) {
    char buffer[4096];
    for (int turns = 0; turns < kTurns; ++turns) {
      for (;;) {
        if (condition()) return true;
        const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
        closed_ = got == 0 || (got < 0 && errno != EAGAIN);
        if (closed_) return false;
        if (got < 0) break;
        came_.append(buffer, static_cast<std::size_t>(got));
      }
      Turn();
    }
    return false;
  }

  boost::asio::io_context& loop_;
  UniqueFd fd_;
  std::string came_;
  bool closed_ = false;
};

class ControlDoor : public testing::Test {
 protected:
  void Open(const HttpLimits& options) {
    control = std::make_unique<Control>(daemon.loop(), daemon.api(), options);
    ASSERT_TRUE(control->Listen(socket).ok());
  }
  void TearDown() override {
    control->Close();
    daemon.Turn();
  }
  Peer Connect() { return Peer(daemon.loop(), socket); }

  fuzz::InProcessDaemon daemon;
  const std::string socket = daemon.socket() + ".control";
  std::unique_ptr<Control> control;
};

std::string PercentEncoded(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : bytes) out += {'%', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
  return out;
}

// Three characters stand for each byte of it in a query.
TEST_F(ControlDoor, TheLongestPathThereIsFitsIntoAQuery) {
  std::string path = daemon.data();
  while (path.size() + 201 < 4000) {
    path += '/';
    for (int i = 0; i < 100; ++i) path += "\xc3\xa4";
  }
  std::filesystem::create_directories(path);
  path += '/';
  while (path.size() < 4090) path += '\xa4';
  std::ofstream(path) << "far";
  Open({});
  Peer peer = Connect();
  ASSERT_EQ(peer.Ask("POST", "/v1/walk", json{{"paths", {daemon.data()}}}.dump()).status, 202u);
  Reply job = peer.Ask("GET", "/v1/jobs/1");
  for (int i = 0; i < 2000 && job.body["state"] == "running"; ++i) job = peer.Ask("GET", "/v1/jobs/1");
  ASSERT_EQ(job.body["state"], "done") << job.body;

  const Reply file = peer.Ask("GET", "/v1/file?path=" + PercentEncoded(path));
  ASSERT_EQ(file.status, 200u) << file.body;
  EXPECT_EQ(file.body["known"], true);
  EXPECT_EQ(file.body["size_bytes"], 3);
  EXPECT_EQ(peer.Ask("GET", "/v1/du?path=" + PercentEncoded(path)).body["files"], 1);
  const Reply listed = peer.Ask("GET", "/v1/files?path=" + PercentEncoded(path.substr(0, path.rfind('/'))));
  ASSERT_EQ(listed.body["entries"].size(), 1u) << listed.body;
  EXPECT_TRUE(listed.body["entries"][0].contains("path_b64"));

  const Reply longer = peer.Ask("GET", "/v1/file?path=/" + std::string(40'000, 'a'));
  EXPECT_EQ(longer.status, 413u);
  EXPECT_EQ(longer.body["error"]["code"], "too_large");
  EXPECT_TRUE(peer.Closed());
}

TEST_F(ControlDoor, OneConnectionTakesOneRequestAfterTheOther) {
  Open({});
  Peer peer = Connect();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(peer.Ask("GET", "/v1/version").body["api"], 1) << i;
  EXPECT_EQ(peer.Ask("GET", "/v1/nothing").status, 404u) << "a refusal of ours does not end it";
  // Both before the first answer.
  peer.Send("GET /v1/version HTTP/1.1\r\n\r\nGET /v1/jobs HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(peer.Receive().body["api"], 1);
  EXPECT_TRUE(peer.Receive().body.contains("jobs"));
  EXPECT_TRUE(peer.Closed());
}

TEST_F(ControlDoor, OneConnectionTooManyTakesThePlaceOfTheOneThatIsIdleLongest) {
  Open({.max_connections = 2});
  Peer first = Connect(), second = Connect();
  EXPECT_EQ(first.Ask("GET", "/v1/version").status, 200u);
  EXPECT_EQ(second.Ask("GET", "/v1/version").status, 200u);
  EXPECT_EQ(first.Ask("GET", "/v1/version").status, 200u);  // now the second is idle longest
  Peer third = Connect();
  EXPECT_EQ(third.Ask("GET", "/v1/version").status, 200u);
  EXPECT_TRUE(second.Closed());
  EXPECT_EQ(first.Ask("GET", "/v1/version").status, 200u);
  EXPECT_EQ(third.Ask("GET", "/v1/version").status, 200u);
}

TEST_F(ControlDoor, IncompleteRequestsKeepNobodyOut) {
  Open({.max_connections = 2});
  Peer half = Connect(), idle = Connect();
  half.Send("GET /v1/ver");
  EXPECT_EQ(idle.Ask("GET", "/v1/version").status, 200u);
  EXPECT_EQ(Connect().Ask("GET", "/v1/version").status, 200u);
  EXPECT_TRUE(idle.Closed()) << "who is idle goes before who is asking";
  Peer next = Connect();
  next.Send("GET /v1/ver");
  daemon.Turn();
  EXPECT_EQ(Connect().Ask("GET", "/v1/version").status, 200u);
  EXPECT_TRUE(half.Closed()) << "of those who are asking, who began first";
  next.Send("sion HTTP/1.1\r\n\r\n");
  EXPECT_EQ(next.Receive().status, 200u);
}

TEST_F(ControlDoor, WhileAllAreBeingAnsweredOneMoreIsToldSo) {
  daemon.api().metrics_text = [] { return std::string(4 << 20, '#'); };  // more than a socket holds
  Open({.max_connections = 1});
  Peer silent = Connect();
  silent.Send("GET /v1/metrics HTTP/1.1\r\n\r\n");
  daemon.Turn();
  Peer second = Connect();
  const Reply refused = second.Receive();  // before it has asked
  EXPECT_EQ(refused.status, 429u);
  EXPECT_EQ(refused.body["error"]["code"], "busy");
  EXPECT_TRUE(second.Closed());
}

TEST_F(ControlDoor, ABodyTooLongIsRefusedBeforeItIsTaken) {
  Open({});
  Peer peer = Connect();
  const Reply refused = peer.Ask("POST", "/v1/evict", std::string(2 << 20, ' '));
  EXPECT_EQ(refused.status, 413u);
  EXPECT_EQ(refused.body["error"]["code"], "too_large");
  EXPECT_TRUE(peer.Closed());
  const std::string longest = "{\"paths\": [\"" + daemon.data() + "\"]}";
  EXPECT_EQ(Connect().Ask("POST", "/v1/evict", longest + std::string(HttpLimits().max_body_bytes - longest.size(), ' ')).status, 200u);
}

TEST_F(ControlDoor, WhatIsNoHttpIsRefused) {
  Open({});
  Peer peer = Connect();
  peer.Send("good day\r\n\r\n");
  const Reply refused = peer.Receive();
  EXPECT_EQ(refused.status, 400u);
  EXPECT_EQ(refused.body["error"]["code"], "bad_request");
  EXPECT_TRUE(peer.Closed());
}

TEST_F(ControlDoor, WhoDoesNotReadIsClosed) {
  daemon.api().metrics_text = [] { return std::string(4 << 20, '#'); };  // more than a socket holds
  Open({.max_connections = 1, .answer_timeout = std::chrono::milliseconds(50)});
  Peer silent = Connect();
  silent.Send("GET /v1/metrics HTTP/1.1\r\n\r\n");
  Reply reply{429, {}};
  for (int i = 0; i < 1000 && reply.status == 429; ++i) reply = Connect().Ask("GET", "/v1/version");
  EXPECT_EQ(reply.status, 200u) << "its place is free again";
  EXPECT_TRUE(silent.Closed());
}

TEST_F(ControlDoor, WhoDoesNotAskIsClosed) {
  Open({.idle_timeout = std::chrono::milliseconds(50)});
  Peer silent = Connect();
  EXPECT_EQ(silent.Receive().status, 0u);
  EXPECT_TRUE(silent.Closed());
}

// However slowly its bytes come: the time is of the whole request, and begins with the first one.
TEST_F(ControlDoor, WhoDoesNotEndARequestIsClosed) {
  Open({.request_timeout = std::chrono::milliseconds(50)});
  Peer slow = Connect();
  for (int i = 0; i < 500 && !slow.HasEnded(); ++i) slow.Send(i == 0 ? "GET /v1/version?" : "a");
  EXPECT_TRUE(slow.HasEnded());
  Peer patient = Connect();
  EXPECT_EQ(patient.Ask("GET", "/v1/version").status, 200u);
}

TEST_F(ControlDoor, ARequestAndItsAnswerHaveATimeTogether) {
  daemon.api().metrics_text = [] { return std::string(4 << 20, '#'); };
  Open({.answer_timeout = std::chrono::seconds(60), .whole_timeout = std::chrono::milliseconds(50)});
  Peer silent = Connect();
  silent.Send("GET /v1/metrics HTTP/1.1\r\n\r\n");
  // Nothing is read for longer than that: the answer does not fit into the socket.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200); std::chrono::steady_clock::now() < end;) (void)silent.HasEnded();
  EXPECT_TRUE(silent.Closed());
}

}  // namespace
}  // namespace tierd::server
