// host_list_test.cc - tests of lists of hosts: on the command line, in files, from SLURM
#include "config/host_list.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gradlane::test::host_list_test {
namespace {

// Returns the hosts, as in "a b:19000", or the text of the SetupError.
template <class Parse>
std::string told(Parse parse) {
  std::string text;
  try {
    for (const Host& it : parse()) {
      text += (text.empty() ? "" : " ") + it.name + (it.port == 0 ? "" : ":" + std::to_string(it.port));
    }
  } catch (const SetupError& error) {
    return error.what();
  }
  return text;
}

std::string hosts(std::string_view list) {
  return told([&] { return parse_hosts(list, "--nodes"); });
}
std::string file(std::string_view text) {
  return told([&] { return parse_host_file(text, "h.txt"); });
}
std::string slurm(std::string_view list) {
  return told([&] { return parse_slurm_hosts(list, "LIST"); });
}

TEST(HostList, Words) {
  EXPECT_EQ(hosts("10.0.0.1,10.0.0.2"), "10.0.0.1 10.0.0.2");
  EXPECT_EQ(hosts(" node-a , b_2.example.org:1 ,c:65535"), "node-a b_2.example.org:1 c:65535");
  const std::vector<Host> ipv6 = parse_hosts("fd00::1,[fd00::2],[fd00::3]:19000,::ffff:10.0.0.1", "");
  const std::vector<Host> want = {{"fd00::1", 0}, {"fd00::2", 0}, {"fd00::3", 19000}, {"::ffff:10.0.0.1", 0}};
  EXPECT_EQ(ipv6, want);
}

TEST(HostList, BadWords) {
  for (const char* const list : {"", ",", "a,", ",a", "a,,b", " "}) {
    EXPECT_TRUE(hosts(list).starts_with("--nodes: a host is missing at the beginning, end, or between commas")) << list;
  }
  for (const char* const word : {"a b", "-a", "a/b", "@x", "[a]", "[::1", "fe80::1%eth0", "[]", "[]:1", ":1", "a\tb",
                                 "n[1-3]", "::1:", "a:b:c", "1::2::3"}) {
    const std::string text = hosts(std::string("x,") + word);
    EXPECT_NE(text.find("is not a host, allowed: names, IPv4"), std::string::npos) << text;
  }
  for (const char* const word : {"a:", "a:0", "a:65536", "a:x", "a:-1", "[::1]:", "[::1]x", "[::1]1"}) {
    const std::string text = hosts(word);
    EXPECT_NE(text.find("has no UDP port after its ':', allowed: 1 to 65535"), std::string::npos) << text;
  }
  EXPECT_NE(hosts(std::string(254, 'a')).find("is not a host"), std::string::npos);
  std::string many;
  for (int i = 0; i < 257; ++i) many += (i == 0 ? "n" : ",n") + std::to_string(i);
  EXPECT_EQ(hosts(many), "--nodes: more than 256 hosts, allowed: 1 to 256");
}

TEST(HostList, Files) {
  EXPECT_EQ(file("# ours\n10.0.0.1\n\n  b:19000 slots=4 max_slots=8 # two\r\n\tc\tslots=1\n[::1]:1024"),
            "10.0.0.1 b:19000 c ::1:1024");
  EXPECT_TRUE(file("a\nb:4").starts_with("h.txt:2: 'b:4' has a UDP port below 1024"));
  EXPECT_EQ(file(""), "h.txt: the file has no hosts, allowed: one host per line");
  EXPECT_EQ(file("# a\n \n"), "h.txt: the file has no hosts, allowed: one host per line");
  EXPECT_TRUE(file("a\n\na,b\n").starts_with("h.txt:3: 'a,b' is not a host"));
}

TEST(HostList, Slurm) {
  EXPECT_EQ(slurm("n1"), "n1");
  EXPECT_EQ(slurm("n[01-03,7],login2"), "n01 n02 n03 n7 login2");
  EXPECT_EQ(slurm("n[8-11]"), "n8 n9 n10 n11");
  EXPECT_EQ(slurm("n[098-101,0]-ib.x"), "n098-ib.x n099-ib.x n100-ib.x n101-ib.x n0-ib.x");
  EXPECT_EQ(slurm("a,rack[0-1]n[0-1]b,c"), "a rack0n0b rack0n1b rack1n0b rack1n1b c");
  EXPECT_EQ(slurm("[1-2]x"), "1x 2x");
  EXPECT_EQ(slurm("n[0-255]").substr(0, 8), "n0 n1 n2");
}

TEST(HostList, BadSlurm) {
  for (const char* const list : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_TRUE(slurm(list).starts_with("LIST: a host is missing")) << slurm(list);
  }
  for (const char* const list :
       {"n[]", "n[1,]", "n[,1]", "n[1-]", "n[-1]", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[1-[2]]", "n[ 1]", "n[0x1]",
        "n[99999999999999999999]", "n[0-1000000000]", "n[0000000000000000001]"}) {
    EXPECT_NE(slurm(list).find("are not numbers, allowed: as in login2,n[01-03,7]"), std::string::npos) << slurm(list);
  }
  EXPECT_NE(slurm("n[1-3").find("has a '[' without its ']'"), std::string::npos);
  EXPECT_NE(slurm("n[1").find("has a '[' without its ']'"), std::string::npos);
  EXPECT_NE(slurm("n1]").find("has a ']' without its '['"), std::string::npos);
  EXPECT_NE(slurm("n[1]]").find("has a ']' without its '['"), std::string::npos);
  EXPECT_NE(slurm("a:1").find("is not a name"), std::string::npos);
  EXPECT_NE(slurm("a b").find("is not a host"), std::string::npos);
}

// A list with too many hosts is refused before it is expanded.
TEST(HostList, HugeSlurm) {
  const std::string want = "LIST: more than 256 hosts, allowed: 1 to 256";
  EXPECT_EQ(slurm("n[0-999999999]"), want);
  EXPECT_EQ(slurm("n[0-256]"), want);
  EXPECT_EQ(slurm("n[0-200],m[0-200]"), want);
  EXPECT_EQ(slurm("n[0-99]n[0-99]n[0-99]n[0-99]"), want);
  std::string groups;
  for (int i = 0; i < 10000; ++i) groups += "[0-255]";
  EXPECT_EQ(slurm(groups), want);
}

}  // namespace
}  // namespace gradlane::test::host_list_test
