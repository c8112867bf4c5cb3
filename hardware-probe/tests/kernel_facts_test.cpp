// What Linux and installed libraries tell: parsers over text and bytes as they are really written.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "hardware-probe/real/kernel_answers.h"
#include "hardware-probe/real/kernel_libraries.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  if (bytes.size() < offset + sizeof(T)) bytes.resize(offset + sizeof(T));
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

TEST(KernelLog, AnXidIsReadWithTimeAndCard) {
  const auto line = parse_kernel_line(
      "4,1893,5120438112,-;NVRM: Xid (PCI:0000:AF:00): 79, pid='<unknown>', name=<unknown>, GPU "
      "has fallen off the bus.\n SUBSYSTEM=pci\n");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->xid, 79);
  EXPECT_EQ(line->bus, "0000:af:00.0");
  EXPECT_DOUBLE_EQ(line->t_s, 5120.438112);
  EXPECT_EQ(line->text.find("NVRM: Xid"), 0u);
  EXPECT_EQ(line->text.find('\n'), std::string::npos);
}

TEST(KernelLog, OtherLinesOfTheDriverCountAndForeignOnesDoNot) {
  const auto legacy = parse_kernel_line(
      "3,712,8400112,-;NVRM: The NVIDIA Tesla V100 GPU installed in this system is supported "
      "through the NVIDIA 580.xx Legacy drivers. 0000:3b:00.0");
  ASSERT_TRUE(legacy.has_value());
  EXPECT_EQ(legacy->xid, 0);
  EXPECT_EQ(legacy->bus, "0000:3b:00.0");
  EXPECT_TRUE(parse_kernel_line("6,1,2,-;nvidia: loading out-of-tree module").has_value());
  for (const char* foreign :
       {"6,1,2,-;usb 1-1: new device", "", "NVRM", "6;NVRM: x", "no header NVRM; text"})
    EXPECT_FALSE(parse_kernel_line(foreign).has_value()) << foreign;
}

TEST(Aer, TheTotalIsTheFilesLastLine) {
  EXPECT_EQ(aer_total("RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7\n"), 7);
  EXPECT_EQ(aer_total("Undefined 0\nTOTAL_ERR_FATAL 0\n"), 0);
  EXPECT_FALSE(aer_total("").has_value());
  EXPECT_FALSE(aer_total("RxErr 3\n").has_value());
}

// A configuration space with an AER capability at 0x100 and access control at 0x148.
std::string bridge(uint16_t control) {
  std::string config(4096, '\0');
  put<uint32_t>(config, 0x100, 0x14820001u);
  put<uint32_t>(config, 0x148, 0x0001000du);
  put<uint16_t>(config, 0x14c, 0x5f);
  put<uint16_t>(config, 0x14e, control);
  return config;
}

TEST(Acs, RedirectionIsReadFromTheControlRegister) {
  EXPECT_EQ(acs_redirects(bridge(0x1d)), true);   // as Linux sets it with an IOMMU
  EXPECT_EQ(acs_redirects(bridge(0x04)), true);   // requests alone
  EXPECT_EQ(acs_redirects(bridge(0x11)), false);  // source validation does not redirect
  EXPECT_EQ(acs_redirects(bridge(0x00)), false);
  EXPECT_EQ(acs_redirects(std::string(4096, '\0')), false);  // a bridge without the capability
}

TEST(Acs, WithoutRootNothingIsSaidAndAChainInACircleEnds) {
  EXPECT_FALSE(acs_redirects(bridge(0x1d).substr(0, 64)).has_value());
  std::string circle(4096, '\0');
  put<uint32_t>(circle, 0x100, 0x10010001u);
  EXPECT_EQ(acs_redirects(circle), false);
  put<uint32_t>(circle, 0x100, 0xffc10001u);  // points at the last bytes
  EXPECT_EQ(acs_redirects(circle), false);
}

struct FatEntry {
  uint16_t kind;  // 1 PTX, 2 machine code
  uint32_t arch;
};

std::string fat_binary(const std::vector<FatEntry>& entries) {
  std::string body;
  for (const FatEntry& entry : entries) {
    const size_t at = body.size();
    put<uint16_t>(body, at, entry.kind);
    put<uint32_t>(body, at + 4, 64);
    put<uint64_t>(body, at + 8, 128);
    put<uint32_t>(body, at + 28, entry.arch);
    body.resize(at + 64 + 128);
  }
  std::string out;
  put<uint32_t>(out, 0, 0xBA55ED50u);
  put<uint16_t>(out, 4, 1);
  put<uint16_t>(out, 6, 16);
  put<uint64_t>(out, 8, body.size());
  return out + body;
}

// A 64-bit ELF file with these sections.
std::string elf(const std::vector<std::pair<std::string, std::string>>& contents) {
  std::string file(
      "\x7f"
      "ELF\2\1\1",
      7);
  file.resize(64);
  std::string names(1, '\0'), table(64, '\0');
  const auto add = [&](const std::string& name, const std::string& data) {
    const size_t entry = table.size();
    file.resize((file.size() + 63) / 64 * 64);
    put<uint32_t>(table, entry, static_cast<uint32_t>(names.size()));
    put<uint32_t>(table, entry + 4, 1);
    put<uint64_t>(table, entry + 24, file.size());
    names += name + '\0';
    put<uint64_t>(table, entry + 32, name == ".shstrtab" ? names.size() : data.size());
    table.resize(entry + 64);
    file += name == ".shstrtab" ? names : data;
  };
  for (const auto& [name, data] : contents) add(name, data);
  add(".shstrtab", "");
  file.resize((file.size() + 63) / 64 * 64);
  put<uint64_t>(file, 0x28, file.size());
  put<uint16_t>(file, 0x3c, static_cast<uint16_t>(contents.size() + 2));
  put<uint16_t>(file, 0x3e, static_cast<uint16_t>(contents.size() + 1));
  return file + table;
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_file_atomically(path, text);
}

TEST(KernelLibraries, NcclIsFoundInPythonPackagesWithVersionAndArchitectures) {
  const TempDir home;
  const fs::path file = home.path() / "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
  // Two regions, as a linker leaves them: aligned, with a gap between.
  const std::string code =
      fat_binary({{2, 60}, {2, 70}}) + std::string(24, '\0') + fat_binary({{2, 90}, {1, 90}});
  write(file, elf({{".rodata", std::string("abc\0NCCL version 2.21.5+cuda12.4\0x", 34)},
                   {".nv_fatbin", code}}));
  KernelLibrary found;
  for (const KernelLibrary& library : find_nccl({home.path()})) {
    if (!library.loader) found = library;
  }
  EXPECT_EQ(fs::path(found.path), fs::canonical(file));
  EXPECT_EQ(found.version, "2.21.5");
  EXPECT_EQ(found.cuda, "12.4");
  EXPECT_EQ(found.archs, (std::vector<int>{60, 70, 90}));
  EXPECT_EQ(found.ptx_archs, std::vector<int>{90});
}

TEST(KernelLibraries, TorchIsFoundWithItsVersionFile) {
  const TempDir home;
  const fs::path packages = home.path() / "lib/python3.12/dist-packages";
  write(packages / "torch/lib/libtorch_cuda.so",
        elf({{".nv_fatbin", fat_binary({{2, 75}, {2, 80}, {1, 120}})}}));
  write(packages / "torch/version.py",
        "from typing import Optional\n__all__ = ['__version__', 'cuda']\n"
        "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n");
  const std::vector<KernelLibrary> found = find_torch({home.path(), home.path()});
  ASSERT_EQ(found.size(), 1u);  // the same file twice is one library
  EXPECT_EQ(found[0].version, "2.11.0+cu130");
  EXPECT_EQ(found[0].cuda, "13.0");
  EXPECT_FALSE(has_kernels_for(found[0], 70));
  EXPECT_TRUE(has_kernels_for(found[0], 86));
}

TEST(KernelLibraries, BrokenFilesAreListedWithoutArchitectures) {
  const TempDir home;
  const std::string whole = elf({{".nv_fatbin", fat_binary({{2, 70}})}});
  for (const std::string& text : {std::string("no library"), whole.substr(0, 80),
                                  whole.substr(0, whole.size() - 100), std::string(200, '\xff')}) {
    write(home.path() / "lib/libnccl.so.2", text);
    const KernelLibrary library = inspect_nccl(home.path() / "lib/libnccl.so.2");
    EXPECT_TRUE(library.archs.empty());
    EXPECT_TRUE(library.version.empty());
  }
}

TEST(KernelLibraries, CodeRunsOnLaterMinorVersionsAndPtxOnEverythingLater) {
  const KernelLibrary nccl{"", "2.21.5", "12.4", {50, 60, 61, 70, 80, 90}, {90}, true};
  for (const int arch : {60, 61, 70, 75, 80, 86, 89, 90, 100, 120})
    EXPECT_TRUE(has_kernels_for(nccl, arch)) << arch;
  const KernelLibrary newer{"", "2.31.1", "13.0", {75, 80, 90, 100}, {120}, true};
  EXPECT_FALSE(has_kernels_for(newer, 70));
  EXPECT_FALSE(has_kernels_for(newer, 61));
  EXPECT_TRUE(has_kernels_for(newer, 75));
  EXPECT_TRUE(has_kernels_for(KernelLibrary{}, 70));  // nothing known, nothing said
}

}  // namespace
}  // namespace lockstep::probe
