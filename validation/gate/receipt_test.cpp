#include "validation/gate/receipt.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

class Receipt : public ::testing::Test {
 protected:
  Receipt() {
    write_file_atomically(dir_.path() / "config.json", std::string("{}"));
    report_.verdict = Verdict::fail;
    GateStep step;
    step.id = "i1";
    step.verdict = Verdict::fail;
    step.detail = "bytes \xff\xfe that are no text";
    step.seconds = 1.5;
    report_.steps.push_back(step);
    report_.run_digests = {{"tp1", "00"}};
    report_.not_checked = {"CUDA"};
    facts_.command = "lockstep gate --quick";
    facts_.options.model = dir_.path();
    facts_.options.oracle = dir_.path() / "oracle";
    facts_.started = "2026-01-31T12:00:00Z";
  }

  static std::string error(const std::string& text) {
    try {
      verify_receipt(text, "r.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TempDir dir_;
  GateReport report_;
  ReceiptFacts facts_;
};

TEST_F(Receipt, HoldsWhatTheFormatPromises) {
  const Json json = Json::parse(make_receipt(report_, facts_));
  for (const char* key :
       {"format", "format_version", "command", "verdict",     "build",       "model",   "oracle",
        "fault",  "steps",          "runs",    "comparisons", "not_checked", "host",    "digest",
        "policy", "complete",       "sources", "mutation",    "proven",      "machine", "ops"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json.size(), 21u);
  for (const char* key : {"version", "commit", "dirty", "compiler", "flags", "programs_digest"}) {
    EXPECT_TRUE(json["build"].contains(key)) << key;
  }
}

TEST_F(Receipt, NamesNoFolderOfTheMachine) {
  facts_.command = "lockstep gate --model /a/b/model --out=/a/c/ --oracle golden/oracle/public -v";
  report_.steps[0].repro = "lockstep gate --model /a/b/model --only i1";
  const Json json = Json::parse(make_receipt(report_, facts_));
  EXPECT_EQ(json["command"],
            "lockstep gate --model model --out=c/ --oracle golden/oracle/public -v");
  EXPECT_EQ(json["steps"][0]["repro"], "lockstep gate --model model --only i1");
  EXPECT_EQ(json["model"]["path"], dir_.path().filename().string());
  EXPECT_EQ(json["oracle"]["path"], "oracle");
}

TEST_F(Receipt, VerifiesItself) {
  EXPECT_EQ(error(make_receipt(report_, facts_)), "no error");
}

TEST_F(Receipt, AnyChangeIsNoticed) {
  const std::string text = make_receipt(report_, facts_);
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"FAIL", "PASS"}, {"1.5", "1.4"}, {"CUDA", "CUDB"}}) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_NE(error(changed).find("was changed"), std::string::npos) << from;
  }
  // Layout is not content.
  EXPECT_EQ(error(Json::parse(text).dump()), "no error");
}

TEST_F(Receipt, OtherFilesAreRefusedByName) {
  EXPECT_EQ(error("{"), "r.json: is no receipt");
  EXPECT_EQ(error("[]"), "r.json: is no receipt");
  EXPECT_EQ(error("{}"), "r.json: is no receipt");
  Json newer = Json::parse(make_receipt(report_, facts_));
  newer["format_version"] = kReceiptVersion + 1;
  EXPECT_NE(error(newer.dump()).find("version 4 is newer"), std::string::npos);
}

TEST_F(Receipt, TwoRunsDifferInHostAlone) {
  Json a = Json::parse(make_receipt(report_, facts_));
  facts_.started = "2027-01-31T12:00:00Z";
  facts_.seconds = 9;
  report_.steps[0].seconds = 3;
  Json b = Json::parse(make_receipt(report_, facts_));
  EXPECT_NE(a, b);
  for (Json* json : {&a, &b}) {
    json->erase("host");
    json->erase("digest");
  }
  EXPECT_EQ(a, b);
}

TEST_F(Receipt, FolderDigestSeesNamesAndBytes) {
  const std::string before = folder_digest(dir_.path());
  EXPECT_EQ(folder_digest(dir_.path()), before);
  write_file_atomically(dir_.path() / "config.json", std::string("[]"));
  const std::string changed = folder_digest(dir_.path());
  EXPECT_NE(changed, before);
  std::filesystem::rename(dir_.path() / "config.json", dir_.path() / "other.json");
  EXPECT_NE(folder_digest(dir_.path()), changed);
}

}  // namespace
}  // namespace lockstep
