#include "tierctl/client/http_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>

#include "fake_control.h"
#include "tierctl/client/control_client.h"

namespace tierctl {
namespace {

TEST(HttpClient, SendsAndReceives) {
  FakeControl fake;
  fake.Reply("POST /v1/evict", {{"files", 3}});
  const auto reply = Exchange(fake.socket(), {"POST", "/v1/evict", R"({"paths": ["/a"]})", 5000});
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 200u);
  EXPECT_EQ(reply->body, R"({"files":3})");
  EXPECT_EQ(fake.Requests().at(0).body["paths"][0], "/a");
}

TEST(HttpClient, LargeBodiesBothWays) {
  FakeControl fake;
  fake.Reply("POST /v1/x", {{"text", std::string(5'000'000, 'x')}});
  const auto reply = Exchange(fake.socket(), {"POST", "/v1/x", "\"" + std::string(900'000, 'y') + "\"", 20'000});
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_GT(reply->body.size(), 5'000'000u);
  EXPECT_EQ(fake.Requests().at(0).body.get<std::string>().size(), 900'000u);
}

TEST(HttpClient, NobodyThere) {
  const FakeControl fake;
  EXPECT_EQ(Exchange(fake.directory() + "/none", {}).status().code(), tierd::Code::kNotFound);
  std::ofstream(fake.directory() + "/file") << "x";
  EXPECT_EQ(Exchange(fake.directory() + "/file", {}).status().code(), tierd::Code::kNotFound);
  EXPECT_EQ(Exchange("/" + std::string(200, 'x'), {}).status().code(), tierd::Code::kInvalid);
}

TEST(HttpClient, SilentDaemonTimesOut) {
  const FakeControl fake;
  const std::string path = fake.directory() + "/silent.sock";
  const tierd::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(fd.get(), 4), 0);
  const tierd::Status silent = Exchange(path, {"GET", "/v1/status", "", 50}).status();
  EXPECT_EQ(silent.code(), tierd::Code::kTimeout);
  EXPECT_EQ(silent.message(), "tierd (pid " + std::to_string(::getpid()) + ") does not answer: it is stopped or hung");
}

TEST(HttpClient, WhatIsNoHttp) {
  FakeControl fake;
  fake.ReplyRaw("GET /a", "garbage\r\n\r\n");
  fake.ReplyRaw("GET /b", "");
  fake.ReplyRaw("GET /c", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
  for (const char* target : {"/a", "/b", "/c"}) EXPECT_EQ(Exchange(fake.socket(), {"GET", target, "", 5000}).status().code(), tierd::Code::kIo) << target;
}

TEST(ControlClient, ErrorsOfTheDaemonAreTakenApart) {
  FakeControl fake;
  fake.ReplyError("GET /v1/a", 422, "invalid_config", "it is wrong", {"t:1: x", "t:2: y"});
  fake.ReplyText("GET /v1/b", "oops", 500);
  fake.ReplyText("GET /v1/c", "[1]", 200);
  ControlClient client{fake.socket()};
  const Answer a = client.Get("/v1/a");
  EXPECT_EQ(a.exit, kExitError);
  EXPECT_EQ(a.code, "invalid_config");
  EXPECT_EQ(a.message, "it is wrong");
  EXPECT_EQ(a.details, (std::vector<std::string>{"t:1: x", "t:2: y"}));
  EXPECT_EQ(client.Get("/v1/b").message, "tierd answered 500 and no reason");
  EXPECT_EQ(client.Get("/v1/c").exit, kExitError);
}

}  // namespace
}  // namespace tierctl
