#include "validation/gate/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "validation/gate/gate.h"
#include "validation/gate/gpu_facts.h"

namespace lockstep {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_policy(text, "p.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string policy_json(const std::string& members) {
  return R"({"format": "lockstep-policy", "format_version": 1, "name": "mine")" + members + "}";
}

TEST(Policy, BuiltInOnesNameKnownChecksAndBothCanaries) {
  std::set<std::string> known;
  for (const auto& [id, title] : gate_checks()) known.insert(id);
  for (const std::string& name : built_in_policies()) {
    const Policy policy = load_policy(name);
    EXPECT_EQ(policy.name, name);
    std::set<std::string> ids;
    for (const PolicyCheck& check : policy.checks) {
      EXPECT_TRUE(known.contains(check.id)) << name << ": " << check.id;
      EXPECT_TRUE(ids.insert(check.id).second) << name << " lists twice: " << check.id;
    }
    const std::string of = policy.backend == "cuda" ? "op-" : "";
    EXPECT_TRUE(ids.contains(of + "planted-fault") && ids.contains(of + "empty-run")) << name;
  }
}

TEST(Policy, EveryCheckIsInSomePolicy) {
  std::set<std::string> listed;
  for (const std::string& name : built_in_policies()) {
    for (const PolicyCheck& check : load_policy(name).checks) listed.insert(check.id);
  }
  for (const auto& [id, title] : gate_checks()) EXPECT_TRUE(listed.contains(id)) << id;
}

TEST(Policy, ReleaseAcceptsNoWaiver) {
  EXPECT_FALSE(load_policy("release").accepts_waivers);
  EXPECT_TRUE(load_policy("gpu").accepts_waivers);
  EXPECT_EQ(load_policy("gpu").backend, "cuda");
}

TEST(Policy, ReadsEveryField) {
  const Policy policy =
      parse_policy(policy_json(R"(, "backend": "cuda", "required": ["i1"], "optional": ["i2"],
                     "mutants": "all", "waivers": false, "not_checked": ["speed"])"),
                   "p.json");
  ASSERT_EQ(policy.checks.size(), 2u);
  EXPECT_TRUE(policy.checks[0].required);
  EXPECT_FALSE(policy.checks[1].required);
  EXPECT_EQ(policy.n_mutants, -1);
  EXPECT_EQ(policy.backend, "cuda");
  EXPECT_FALSE(policy.accepts_waivers);
  EXPECT_EQ(policy.not_checked, std::vector<std::string>{"speed"});
}

TEST(Policy, RefusesByName) {
  EXPECT_EQ(error_of("{"), "p.json: is no policy");
  EXPECT_NE(error_of(policy_json(R"(, "requierd": [])")).find("unknown field 'requierd'"),
            std::string::npos);
  EXPECT_NE(error_of(policy_json(R"(, "backend": "tpu")")).find("backend"), std::string::npos);
  EXPECT_NE(error_of(policy_json(R"(, "mutants": -3)")).find("mutants"), std::string::npos);
  EXPECT_NE(error_of(policy_json(R"(, "required": [1])")).find("required"), std::string::npos);
  EXPECT_NE(error_of(R"({"format": "lockstep-policy", "format_version": 9})").find("version 9"),
            std::string::npos);
  EXPECT_THROW(load_policy("no-such-policy"), Error);
}

TEST(GpuFacts, ReadsWhatTheDriverWrites) {
  const TempDir proc;
  EXPECT_TRUE(installed_gpus(proc.path()).empty());
  EXPECT_EQ(driver_version(proc.path()), "");
  for (const char* slot : {"0000:01:00.0", "0000:02:00.0"}) {
    std::filesystem::create_directories(proc.path() / "gpus" / slot);
    write_file_atomically(proc.path() / "gpus" / slot / "information",
                          std::string("Model: \t\t Tesla V100\nGPU UUID:  \t GPU-") + slot + "\n");
  }
  write_file_atomically(proc.path() / "version", std::string("NVRM version: 550\nGCC version\n"));
  const std::vector<GpuFacts> gpus = installed_gpus(proc.path());
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1].model, "Tesla V100");
  EXPECT_EQ(gpus[1].uuid, "GPU-0000:02:00.0");
  EXPECT_EQ(driver_version(proc.path()), "NVRM version: 550");
}

}  // namespace
}  // namespace lockstep
