#include "engine/base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "engine/base/philox.h"

namespace lockstep {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string random_bytes(size_t n) {
  PhiloxStream stream(5);
  std::string text(n, '\0');
  for (char& c : text) c = static_cast<char>(stream.next_u32());
  return text;
}

// Published values of the XXH3 specification for empty input and seed 0.
TEST(Digest, KnownAnswers) {
  EXPECT_EQ(digest64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(digest128_hex({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Digest128().hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, StreamingEqualsOneShotHoweverItIsCut) {
  for (const size_t size : {0, 1, 16, 17, 240, 241, 1024, 5000}) {
    const std::string text = random_bytes(size);
    const std::string want = digest128_hex(bytes_of(text));
    for (const size_t step : {size_t{1}, size_t{7}, size_t{256}, size_t{5000}}) {
      Digest128 digest;
      for (size_t i = 0; i < size; i += step) digest.update(text.substr(i, step));
      EXPECT_EQ(digest.hex(), want) << size << " bytes by " << step;
      EXPECT_EQ(digest.hex(), want) << "hex() must not change the state";
    }
  }
}

TEST(Digest, TextAndBytesAgree) {
  Digest128 as_text;
  as_text.update(std::string("lockstep"));
  Digest128 as_bytes;
  as_bytes.update(bytes_of("lockstep"));
  EXPECT_EQ(as_text.hex(), as_bytes.hex());
}

// Every single-bit flip and every seed gives another digest.
TEST(Digest, SeesEveryBit) {
  std::string text = random_bytes(300);
  std::set<uint64_t> seen64 = {digest64(bytes_of(text))};
  std::set<std::string> seen128 = {digest128_hex(bytes_of(text))};
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    const auto mask = static_cast<char>(1u << (bit % 8));
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
    EXPECT_TRUE(seen64.insert(digest64(bytes_of(text))).second);
    EXPECT_TRUE(seen128.insert(digest128_hex(bytes_of(text))).second);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ mask);
  }
  for (uint64_t seed = 1; seed < 100; ++seed) {
    EXPECT_TRUE(seen64.insert(digest64(bytes_of(text), seed)).second);
  }
}

}  // namespace
}  // namespace lockstep
