#include "hardware-probe/report/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "hardware-probe/report/machine.h"
#include "hardware-probe/tests/probe_runs.h"

namespace lockstep::probe {
namespace {

using Json = nlohmann::json;

struct Made {
  Observations seen;
  Judgement judgement;
  Profile profile;
  ReportInput input() const { return {seen, judgement, profile, "", "0.1.0"}; }
};

Made make(const std::string& spec, Mode mode) {
  Made out;
  out.seen = observe_sim(spec, mode);
  out.judgement = judge(out.seen, card_database(), "");
  out.profile = make_profile(out.seen, out.judgement, card_database());
  return out;
}

const std::string& healthy_report() {
  static const std::string report =
      report_to_json(make("V100-SXM2-32GB", Mode::quick).input(), SigningKey::generate());
  return report;
}

std::string golden(const char* name) {
  return read_text_file(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "hardware-probe/tests/golden" /
                        name);
}

Made make_real(const std::string& spec, Mode mode) {
  Made out = make(spec, mode);
  out.seen.backend = "real";
  out.profile = make_profile(out.seen, out.judgement, card_database());
  return out;
}

std::string all_text(const std::vector<Text>& lines) {
  std::string out;
  for (const Text& line : lines) out += line.en + "\n" + line.zh + "\n";
  return out;
}

bool verifies(const std::string& text) {
  return verify_report(text, "r.json", "", "", card_database()).valid;
}

TEST(Report, IsAsTheGoldenFileSays) {
  const Made made = make("PG500-216*1,retired-few", Mode::quick);
  Json report = Json::parse(report_to_json(made.input(), SigningKey::generate()));
  report.erase("signature");
  EXPECT_EQ(report, Json::parse(golden("report.json")));
  EXPECT_EQ(report_to_text(made.input(), false), golden("report.txt"));
  EXPECT_EQ(Json::parse(profile_to_json(made.profile)), Json::parse(golden("profile.json")));
}

TEST(Report, VerifiesAndNamesTheKey) {
  const SigningKey key = SigningKey::generate();
  const std::string report = report_to_json(make("PG500-216", Mode::quick).input(), key);
  EXPECT_TRUE(
      verify_report(report, "r", "lockstep-sim", key.public_key_hex(), card_database()).valid);
  EXPECT_FALSE(verify_report(report, "r", "another nonce", "", card_database()).valid);
  EXPECT_FALSE(
      verify_report(report, "r", "", SigningKey::generate().public_key_hex(), card_database())
          .valid);
}

// A simulated report may be whole and say ACCEPT; no card was seen for it.
TEST(Report, OfASimulationVerifiesLoudlyAndNeverAsValid) {
  const auto verified = [](const Made& made) {
    return verify_report(report_to_json(made.input(), SigningKey::generate()), "r", "", "",
                         card_database());
  };
  const Verification simulated = verified(make("V100-SXM2-32GB", Mode::quick));
  EXPECT_EQ(verification_exit_code(simulated), ExitCode::mistrusted);
  EXPECT_EQ(verification_text(simulated, "r.json"),
            "SIMULATED  the figures are those of a synthetic machine: this report proves nothing "
            "about any card\nr.json: whole, but SIMULATED; its verdict is ACCEPT (quick)\n");
  const Verification real = verified(make_real("V100-SXM2-32GB,bad-sm", Mode::standard));
  EXPECT_EQ(verification_exit_code(real), ExitCode::pass);
  EXPECT_EQ(verification_text(real, "r.json"), "r.json: valid; its verdict is REJECT (standard)\n");
  Json forged = Json::parse(healthy_report());
  forged["run"]["backend"] = "real";
  forged["verdict"]["name"] = "\x1b[2JACCEPT";
  const Verification bad = verify_report(forged.dump(), "r", "", "", card_database());
  EXPECT_EQ(verification_exit_code(bad), ExitCode::fail);
  EXPECT_NE(verification_text(bad, "r.json").find("NOT VALID; it claims ?[2JACCEPT (quick)"),
            std::string::npos);
}

TEST(Report, AnyTamperingFails) {
  ASSERT_TRUE(verifies(healthy_report()));
  const auto tampered = [](const std::function<void(Json&)>& change) {
    Json report = Json::parse(healthy_report());
    change(report);
    return report.dump();
  };
  EXPECT_TRUE(verifies(tampered([](Json&) {})));
  EXPECT_FALSE(verifies(tampered([](Json& r) { r["verdict"]["name"] = "REJECT"; })));
  EXPECT_FALSE(verifies(
      tampered([](Json& r) { r["observations"]["gpus"][0]["identity"]["serial"] = "other"; })));
  EXPECT_FALSE(verifies(tampered([](Json& r) { r["findings"].erase(3); })));
  EXPECT_FALSE(verifies(tampered([](Json& r) { r["digest"] = "00"; })));
  EXPECT_FALSE(verifies(tampered([](Json& r) { r["signature"]["value"] = "zz"; })));
  EXPECT_FALSE(verifies(tampered([](Json& r) { r.erase("signature"); })));
}

// Whoever holds a key can sign anything; the reasoning and the nonce are still checked.
TEST(Report, AResignedLieIsFoundByJudgingAgain) {
  Made made = make("V100-SXM2-32GB,bad-sm", Mode::quick);
  made.judgement.verdict = Verdict::accept;
  EXPECT_FALSE(verifies(report_to_json(made.input(), SigningKey::generate())));
  // A finding of a comparison cannot be made again; it must not free the verdict.
  Finding compared;
  compared.check = compared.name = "compare";
  compared.target = "host";
  compared.status = Status::info;
  made.judgement.findings.push_back(compared);
  EXPECT_FALSE(verifies(report_to_json(made.input(), SigningKey::generate())));
  made.judgement.verdict = Verdict::reject;
  EXPECT_TRUE(verifies(report_to_json(made.input(), SigningKey::generate())));
  made.judgement.ranking.clear();
  EXPECT_FALSE(verifies(report_to_json(made.input(), SigningKey::generate())));
  Made stale = make("V100-SXM2-32GB", Mode::quick);
  stale.seen.nonce = "fresh";
  EXPECT_FALSE(verifies(report_to_json(stale.input(), SigningKey::generate())));
}

TEST(Report, ReplayGivesTheSameVerdictAndFindings) {
  for (const char* spec :
       {"V100-SXM2-32GB", "PG500-216,p2p-slow", "H200-SXM,memory-hang", "RTX-4090-48G*1"}) {
    const Made made = make(spec, Mode::standard);
    const std::string report = report_to_json(made.input(), SigningKey::generate());
    for (const std::string& text : {report, observations_to_json(made.seen)}) {
      const Observations again = observations_from_json(text, "r");
      EXPECT_EQ(observations_to_json(again), observations_to_json(made.seen)) << spec;
      const Judgement judgement = judge(again, card_database(), "");
      EXPECT_EQ(judgement.verdict, made.judgement.verdict) << spec;
      EXPECT_EQ(judgement.findings.size(), made.judgement.findings.size()) << spec;
    }
  }
}

TEST(Report, HostileTextIsRefusedInOneLine) {
  Json pairs = Json::parse(observations_to_json(observe_sim("V100-SXM2-32GB", Mode::quick)));
  pairs["pairs"][0]["to"] = 99;
  Json version = pairs;
  version["version"] = 7;
  const std::string deep = std::string(100000, '[');
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"steps\":1,\"gpus\":2}"), std::string("{\"observations\":3}"),
        std::string("\xff\xfe"), pairs.dump(), version.dump(), deep}) {
    for (const bool verify : {false, true}) {
      try {
        if (verify) {
          verify_report(text, "evil.json", "", "", card_database());
        } else {
          observations_from_json(text, "evil.json");
        }
        FAIL() << text.substr(0, 60);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_EQ(std::string(error.what()).find("evil.json"), 0u) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
  }
}

// Every number and every list of a record is replaced by something absurd; judging must not crash.
TEST(Report, AbsurdObservationsAreJudgedWithoutACrash) {
  const Json record =
      Json::parse(observations_to_json(observe_sim("PG500-216,stuck-bit", Mode::standard)));
  const Json flat = record.flatten();
  int tried = 0;
  for (const auto& [path, value] : flat.items()) {
    if (++tried % 97 != 0) continue;
    for (const Json& absurd : {Json(nullptr), Json(-1), Json(0), Json(1e308), Json::array()}) {
      Json changed = record;
      changed[Json::json_pointer(path)] = absurd;
      try {
        const Observations seen = observations_from_json(changed.dump(), "r");
        const Judgement judgement = judge(seen, card_database(), "");
        report_to_html({seen, judgement, make_profile(seen, judgement, card_database()), "", "0"});
      } catch (const Error&) {
        // A refusal is fine too.
      }
    }
  }
}

// What stands against a line of the ranking, the findings decide, and they alone.
TEST(Ranking, NamesEveryFindingAgainstItsLines) {
  const std::map<std::string, std::string> line_of = {
      {"C02", "1."}, {"C10", "1."}, {"C11", "1."}, {"C04", "2."}, {"C15", "2."},
      {"C16", "2."}, {"C17", "2."}, {"C18", "2."}, {"C19", "3."}, {"C20", "3."},
      {"C21", "3."}, {"C22", "3."}, {"C23", "3."}};
  for (const sim::Fault& fault : sim::faults()) {
    const Card& card = card_database().get("V100-SXM2-32GB");
    if (!fault.obstacle(sim::build_machine({&card, &card})).empty()) continue;
    const Judgement judgement = judge_sim("V100-SXM2-32GB," + std::string(fault.name), Mode::deep);
    if (judgement.ranking.empty()) continue;
    std::set<std::string> named;
    for (const Finding& finding : judgement.findings) {
      if (finding.status != Status::pass && finding.status != Status::info)
        named.insert(finding.check);
    }
    for (const auto& [check, start] : line_of) {
      for (const Text& line : judgement.ranking) {
        const bool expected = named.count(check) == 1 && line.en.compare(0, 2, start) == 0;
        EXPECT_EQ(line.en.find(check) != std::string::npos, expected) << fault.name << line.en;
        EXPECT_EQ(line.zh.find(check) != std::string::npos, expected) << fault.name << line.zh;
      }
    }
  }
}

// Of one check on one card the gravest finding, once.
TEST(Ranking, NamesTheGravestFindingOfACheck) {
  const std::vector<Text> lines = judge_sim("V100-SXM2-32GB,throttle", Mode::standard).ranking;
  EXPECT_NE(lines[1].en.find("But C17 failed (gpu1); C18 failed (gpu1)."), std::string::npos)
      << lines[1].en;
}

TEST(Ranking, ACardThatWasNotMeasuredIsNoSlowCard) {
  Observations seen = observe_sim("V100-SXM2-32GB", Mode::quick);
  seen.gpus[0].memory_bandwidth.reset();
  seen.gpus[0].rates.reset();
  const std::string text = all_text(judge(seen, card_database(), "").ranking);
  EXPECT_EQ(text.find("reads 0"), std::string::npos) << text;
  EXPECT_NE(text.find("C10 could not run (gpu0)"), std::string::npos) << text;
  seen.gpus[1].memory_bandwidth.reset();
  seen.gpus[1].rates.reset();
  const std::string none = all_text(judge(seen, card_database(), "").ranking);
  EXPECT_NE(none.find("reads were not measured"), std::string::npos) << none;
  EXPECT_NE(none.find("FP16 matrix not measured"), std::string::npos) << none;
  const Observations older = observe_sim("V100-SXM2-32GB", Mode::quick);
  const MachineSummary now = summary_of(seen), before = summary_of(older);
  EXPECT_NE(rank_difference(now, before)[0].en.find("reads not measured in both"),
            std::string::npos);
}

// Memory and compute have each their own slowest card.
TEST(Ranking, OfAMixedPairTakesTheSlowerCardOfEachLine) {
  const std::vector<Text> lines = judge_sim("PG500-216+V100-SXM2-32GB", Mode::quick).ranking;
  EXPECT_NE(lines[0].en.find("877 MHz"), std::string::npos) << lines[0].en;
  EXPECT_NE(lines[1].en.find("72 SM at 1380 MHz"), std::string::npos) << lines[1].en;
}

TEST(Ranking, OneCardIsNotSlowedByOthers) {
  const std::string text = all_text(judge_sim("V100-SXM2-32GB*1", Mode::standard).ranking);
  EXPECT_EQ(text.find("together"), std::string::npos) << text;
}

TEST(Html, IsOneSelfContainedPageInBothLanguages) {
  const std::string page =
      report_to_html(make("V100-SXM2-32GB,throttle-second", Mode::standard).input());
  for (const char* needed : {"<!doctype html>", "验收", "Hardware acceptance", "<polyline", "gpu0",
                             "GB/s", "有保留地接受"}) {
    EXPECT_NE(page.find(needed), std::string::npos) << needed;
  }
  for (const char* foreign : {"http://", "src=", "@import", "<link"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
}

TEST(Html, EscapesWhatTheDriverSays) {
  Made made = make("V100-SXM2-32GB*1", Mode::quick);
  made.seen.gpus[0].identity.name = "<script>alert(1)</script>";
  EXPECT_EQ(report_to_html(made.input()).find("<script>alert"), std::string::npos);
}

TEST(Profile, IsMarkedWhenItsNumbersCannotBeTrusted) {
  EXPECT_TRUE(make("V100-SXM2-32GB", Mode::standard).profile.trusted());
  const auto marks = [](const char* spec) { return make(spec, Mode::standard).profile.marks; };
  EXPECT_EQ(marks("V100-SXM2-32GB,throttle-second"), std::vector<std::string>{"throttled"});
  EXPECT_EQ(marks("V100-SXM2-32GB,wrong-clock"),
            (std::vector<std::string>{"rejected", "contradictory"}));
  EXPECT_EQ(marks("V100-SXM2-32GB,other-process"), std::vector<std::string>{"shared"});
  EXPECT_EQ(marks("V100-SXM2-32GB,memory-hang"), std::vector<std::string>{"unproven"});
  EXPECT_EQ(marks("V100-SXM2-32GB,memory-occupied"), std::vector<std::string>{"unproven"});
}

// A folder as the driver makes it: BUS/information.
void write_driver_list(const std::filesystem::path& folder, const std::vector<std::string>& uuids) {
  for (size_t i = 0; i < uuids.size(); ++i) {
    const auto bus = folder / ("0000:0" + std::to_string(i) + ":00.0");
    std::filesystem::create_directories(bus);
    write_file_atomically(bus / "information",
                          "Model: \t\t NVIDIA H200\nGPU UUID: \t " + uuids[i] + "\nBus: PCIe\n");
  }
}

TEST(Machine, AThrottledAContradictoryAndAForeignMachineAreDoubtful) {
  const TempDir dir;
  const auto record_of = [&](const char* spec, const char* backend) {
    Profile profile = make(spec, Mode::standard).profile;
    profile.backend = backend;
    profile.digest = profile_digest(profile);
    write_file_atomically(dir.path() / "p.json", profile_to_json(profile));
    std::vector<std::string> uuids;
    for (const CardSummary& card : profile.cards) uuids.push_back(card.uuid);
    write_driver_list(dir.path() / "gpus", uuids);
    return read_machine(dir.path() / "p.json", dir.path() / "gpus");
  };
  using Marks = std::vector<std::string>;
  const MachineRecord sound = record_of("V100-SXM2-32GB", "real");
  EXPECT_EQ(sound.marks, Marks{});
  EXPECT_EQ(sound.line().find("V100-SXM2-32GB: read 8"), 0u) << sound.line();
  EXPECT_EQ(record_of("V100-SXM2-32GB", "sim").marks, Marks{"simulated"});
  const MachineRecord hot = record_of("V100-SXM2-32GB,throttle-second", "real");
  EXPECT_EQ(hot.marks, Marks{"throttled"});
  EXPECT_EQ(hot.line().find("DOUBTFUL (throttled): "), 0u) << hot.line();
  EXPECT_EQ(record_of("V100-SXM2-32GB,wrong-clock", "real").marks,
            (Marks{"rejected", "contradictory"}));
  EXPECT_NE(record_of("PG500-216,p2p-mirror", "real").summary.find("NOT TRUSTED"),
            std::string::npos);
  const Json json = Json::parse(hot.to_json());
  EXPECT_EQ(json.at("doubtful"), true);
  EXPECT_EQ(json.at("digest"), json.at("profile").at("digest"));
  EXPECT_EQ(read_machine(dir.path() / "p.json", dir.path() / "none").marks.back(), "elsewhere");
}

TEST(Machine, WithoutAGpuOrAProfileItSaysSo) {
  const TempDir dir;
  const MachineRecord bare = read_machine("", dir.path() / "none");
  EXPECT_FALSE(bare.doubtful());
  EXPECT_EQ(bare.line(), "no NVIDIA GPU and no probe profile");
  EXPECT_TRUE(Json::parse(bare.to_json()).at("profile").is_null());
  write_driver_list(dir.path() / "gpus", {"GPU-1", "GPU-2"});
  const MachineRecord unprobed = read_machine("", dir.path() / "gpus");
  EXPECT_EQ(unprobed.marks, std::vector<std::string>{"unproven"});
  EXPECT_NE(unprobed.line().find("2 NVIDIA GPU(s)"), std::string::npos) << unprobed.line();
  Observations nothing;
  nothing.backend = "real";
  const Profile profile =
      make_profile(nothing, judge(nothing, card_database(), ""), card_database());
  EXPECT_EQ(profile.marks, std::vector<std::string>{"no-gpu"});
  write_file_atomically(dir.path() / "p.json", profile_to_json(profile));
  EXPECT_EQ(read_machine(dir.path() / "p.json", dir.path() / "none").line(),
            "no NVIDIA GPU; probe says INCONCLUSIVE (quick)");
  EXPECT_EQ(read_machine(dir.path() / "p.json", dir.path() / "gpus").marks,
            std::vector<std::string>{"elsewhere"});
  EXPECT_THROW(read_machine(dir.path() / "absent.json", dir.path()), Error);
}

TEST(Profile, ALinkIsTrustedAsItsFindingsSay) {
  EXPECT_TRUE(make("V100-SXM2-32GB", Mode::quick).profile.links.at(0).trusted);
  for (const char* fault : {"p2p-mirror", "p2p-slow", "p2p-narrow", "sums-wrong", "p2p-denied"}) {
    const Made made = make(std::string("V100-SXM2-32GB,") + fault, Mode::quick);
    for (const ProfileLink& link : made.profile.links) EXPECT_FALSE(link.trusted) << fault;
  }
  const std::string page = report_to_html(make("V100-SXM2-32GB,sums-wrong", Mode::quick).input());
  EXPECT_EQ(page.find("<td class=good>"), std::string::npos);
  const std::string slow = report_to_html(make("V100-SXM2-32GB,p2p-staged", Mode::quick).input());
  EXPECT_EQ(slow.find("<td class=good>"), std::string::npos);
}

TEST(Profile, IsReadBackAndRefusedWhenChanged) {
  const Profile profile = make("PG500-216,p2p-mirror", Mode::quick).profile;
  const std::string text = profile_to_json(profile);
  const Profile again = profile_from_json(text, "p");
  EXPECT_EQ(again.digest, profile.digest);
  EXPECT_FALSE(again.links.at(0).trusted);
  Json changed = Json::parse(text);
  changed["cards"][0]["read_gbps"] = 2000;
  EXPECT_THROW(profile_from_json(changed.dump(), "p"), Error);
  EXPECT_THROW(profile_from_json("{}", "p"), Error);
}

TEST(Compare, TheSameCardsMustNotForgetTheirHistory) {
  const Observations old_run = observe_sim("V100-SXM2-32GB,retired-pages", Mode::quick);
  const Observations wiped = observe_sim("V100-SXM2-32GB", Mode::quick);
  const auto verdict = [&](const Observations& now, const Observations& before) {
    return verdict_of(compare_runs(now, before, card_database()));
  };
  EXPECT_EQ(verdict(wiped, wiped), Verdict::accept);
  EXPECT_EQ(verdict(wiped, old_run), Verdict::reject);
  EXPECT_EQ(verdict(old_run, wiped), Verdict::accept_with_notes);
  EXPECT_EQ(verdict(observe_sim("V100-SXM2-32GB,slow-memory", Mode::quick), wiped),
            Verdict::accept_with_notes);
}

TEST(Signature, FollowsRfc8032) {
  // RFC 8032, section 7.1, test 1: the empty message.
  const std::string public_key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
  const std::string signature =
      "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
      "b46bd25bf5f0595bbe24655141438e7a100b";
  EXPECT_TRUE(signature_is_valid("", public_key, signature));
  EXPECT_FALSE(signature_is_valid("x", public_key, signature));
  EXPECT_FALSE(signature_is_valid("", public_key, ""));
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace lockstep::probe
