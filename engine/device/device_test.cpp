#include "engine/device/device.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/arena.h"

namespace lockstep {
namespace {

std::string error_of(const std::string& name) {
  try {
    open_device(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The CPU, and every card of a machine that has one.
std::vector<std::string> devices_here() {
  std::vector<std::string> names = {"cpu"};
  for (int i = 0; i < n_cuda_devices(); ++i) names.push_back(fmt::format("cuda:{}", i));
  return names;
}

TEST(Device, BytesComeBackAsTheyWentIn) {
  for (const std::string& name : devices_here()) {
    const std::unique_ptr<Device> device = open_device(name);
    const std::unique_ptr<Stream> stream = device->new_stream();
    std::vector<uint8_t> bytes(1000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
    const DeviceMemory memory(*device, 1000);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u) << name;
    stream->copy_in(memory.data(), bytes.data(), 1000);
    stream->fill(memory.data() + 10, 0xa5, 20);
    stream->copy_within(memory.data() + 500, memory.data(), 100);
    std::vector<uint8_t> back(1000);
    stream->copy_out(back.data(), memory.data(), 1000);
    stream->synchronize();
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t from = i >= 500 && i < 600 ? i - 500 : i;
      ASSERT_EQ(back[i], from >= 10 && from < 30 ? 0xa5 : bytes[from]) << name << " byte " << i;
    }
  }
}

TEST(Device, MovedMemoryHasOneOwner) {
  const std::unique_ptr<Device> device = open_device("cpu");
  DeviceMemory first(*device, 64);
  std::byte* const data = first.data();
  DeviceMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.size(), 64);
  DeviceMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

TEST(Device, NamesThatAreNoDeviceAreRefusedByName) {
  EXPECT_NE(error_of("gpu").find("'gpu'"), std::string::npos);
  EXPECT_NE(error_of("cuda:x").find("'cuda:x'"), std::string::npos);
  EXPECT_NE(error_of("cuda:1x").find("'cuda:1x'"), std::string::npos);
  EXPECT_NE(error_of("cuda:99").find("cuda:99"), std::string::npos);
}

TEST(Arena, BlocksAreAlignedAndDoNotOverlap) {
  ArenaPlan plan;
  const int a = plan.add("weights", 1000);
  const int b = plan.add("empty", 0);
  const int c = plan.add("cache", 256);
  EXPECT_EQ(plan.total_bytes(), 1024 + 256);
  const std::unique_ptr<Device> device = open_device("cpu");
  const Arena arena(*device, plan);
  EXPECT_EQ(arena.at(b) - arena.at(a), 1024);
  EXPECT_EQ(arena.at(c), arena.at(b));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.at(c)) % kArenaAlignment, 0u);
}

TEST(Arena, APlanThatDoesNotFitNamesItsLargestBlocks) {
  ArenaPlan plan;
  plan.add("small", 4096);
  plan.add("kv cache", int64_t{1} << 50);
  const std::unique_ptr<Device> device = open_device("cpu");
  try {
    const Arena arena(*device, plan);
    FAIL() << "reserved a pebibyte";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kv cache"), std::string::npos);
    EXPECT_EQ(error.code(), ExitCode::device_error);
  }
}

}  // namespace
}  // namespace lockstep
