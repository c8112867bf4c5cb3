#include "ci/sass/sass.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::sass {
namespace {

// A kernel as cuobjdump prints it; `loop` stands between the loop's head and its branch.
std::string dump_of(const std::string& loop,
                    const std::string& usage = "REG:64 STACK:0 SHARED:9216 LOCAL:0 CONSTANT[0]:1") {
  const std::string name =
      "_ZN8lockstep4cuda12_GLOBAL__N_111skinny_sm70INS1_9Nvfp4TileEEEvNS0_12SkinnyParamsE";
  return " Function " + name + ":\n  " + usage + "\n\t\tFunction : " + name +
         "\n"
         "        /*0000*/                   MOV R1, c[0x0][0x28] ;  /* 0x0a */\n"
         "        /*0010*/                   I2F R3, R0 ;  /* 0x0a */\n"
         "        /*0020*/                   HMMA.884.F32.F32.STEP0 R4, R2, R3, R4 ;  /* 0x0b */\n"
         "                                                  /* 0x0c */\n" +
         loop +
         "        /*0060*/              @!P0 BRA 0x20 ;  /* 0x0b */\n"
         "        /*0070*/                   EXIT ;  /* 0x0b */\n"
         "        /*0080*/                   BRA 0x80;  /* 0x0b */\n";
}

const std::string kPlain =
    "        /*0030*/                   LOP3.LUT R4, R2, R3, R4, 0xea, !PT ;  /* 0x0b */\n"
    "        /*0040*/              @P1 LDG.E.128.SYS R4, [R2] ;  /* 0x0b */\n"
    "        /*0050*/                   IADD3 R9, R3.reuse, 0x8, RZ ;  /* 0x0b */\n";

const std::string kBaseline = R"({"kernels": {"skinny_sm70<Nvfp4Tile>": {
  "registers": 64, "shared": 9216, "loop_instructions": 5, "units_in_loop": 2, "ceiling": 2.5,
  "loop_hmma": 1}}})";

std::string findings_of(const std::string& dump, const std::string& baseline = kBaseline) {
  std::string text;
  for (const std::string& finding : judge(parse_dump(dump), baseline)) text += finding + "\n";
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Sass, ReadsResourcesAndTheLoopAroundTheMatrixInstructions) {
  const std::vector<Kernel> kernels = parse_dump(dump_of(kPlain));
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "skinny_sm70<Nvfp4Tile>");
  EXPECT_EQ(kernels[0].registers, 64);
  EXPECT_EQ(kernels[0].shared_bytes, 9216);
  EXPECT_EQ(kernels[0].loop_instructions, 5);
  EXPECT_EQ(kernels[0].loop_opcodes.at("LDG"), 1);
  EXPECT_FALSE(kernels[0].loop_opcodes.contains("I2F"));
}

TEST(Sass, TheBaselineItselfPasses) {
  EXPECT_EQ(findings_of(dump_of(kPlain)), "");
}

TEST(Sass, EachPlantedFaultIsFound) {
  const std::string good = dump_of(kPlain);
  EXPECT_NE(findings_of(replaced(good, "LOP3.LUT", "I2F.F16 ")).find("I2F"), std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "LOP3.LUT", "CALL.REL")).find("CALL"), std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "LDG.E.128", "LDL")).find("LDL"), std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "REG:64", "REG:80")).find("80 registers"),
            std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "STACK:0", "STACK:16")).find("16 bytes of stack"),
            std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "LOCAL:0", "LOCAL:8")).find("8 of local"),
            std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "SHARED:9216", "SHARED:9220")).find("9220"),
            std::string::npos);
  EXPECT_NE(findings_of(replaced(good, "HMMA.884", "FFMA.884")).find("HMMA"), std::string::npos);
  EXPECT_NE(findings_of(good, replaced(kBaseline, "\"ceiling\": 2.5", "\"ceiling\": 2.4"))
                .find("ceiling"),
            std::string::npos);
  EXPECT_NE(
      findings_of(good, replaced(kBaseline, "\"loop_instructions\": 5", "\"loop_instructions\": 4"))
          .find("5 instructions"),
      std::string::npos);
  EXPECT_NE(
      findings_of(good, replaced(kBaseline, "\"shared\"", "\"dynamic_shared\": 99000, \"shared\""))
          .find("98304"),
      std::string::npos);
}

TEST(Sass, KernelsThatOnlyOneSideKnowsAreFound) {
  EXPECT_NE(findings_of(dump_of(kPlain), R"({"kernels": {}})").find("not in the baseline"),
            std::string::npos);
  const std::string other = replaced(kBaseline, "Nvfp4Tile", "Gone");
  EXPECT_NE(findings_of(dump_of(kPlain), other).find("skinny_sm70<Gone>"), std::string::npos);
}

TEST(Sass, UpdatingKeepsCeilings) {
  const std::string updated =
      with_figures(parse_dump(replaced(dump_of(kPlain), "REG:64", "REG:60")), kBaseline);
  EXPECT_NE(updated.find("\"registers\": 60"), std::string::npos);
  EXPECT_NE(updated.find("\"ceiling\": 2.5"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::sass
