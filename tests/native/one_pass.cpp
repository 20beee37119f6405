// Runs one fixed pass of a small model, for counting its instructions: one_pass ROWS MODE.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "engine.h"

namespace {

void check(int32_t status) {
  if (status == AS_OK) return;
  fprintf(stderr, "%s\n", as_error());
  exit(1);
}

// Blocks of any bits, but scales of about 0.01.
std::vector<uint8_t> blocks(int rows, int columns, as_format format, uint32_t* state) {
  const size_t size = format == AS_Q4_1 ? 20 : 34;
  std::vector<uint8_t> data(size * rows * (columns / 32));
  for (uint8_t& byte : data) {
    *state = *state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(*state >> 24);
  }
  const uint16_t scale = 0x211F, minimum = 0xA11F;
  for (size_t at = 0; at < data.size(); at += size) {
    memcpy(&data[at], &scale, sizeof scale);
    if (format == AS_Q4_1) memcpy(&data[at + 2], &minimum, sizeof minimum);
  }
  return data;
}

}  // namespace

// What callgrind counts: it is told to collect inside this function alone.
extern "C" __attribute__((noinline)) int32_t counted(as_model* model, const as_pass* pass) {
  return as_forward(model, pass);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int rows = atoi(arguments[1]), mode = atoi(arguments[2]), context = 48;
  const as_config config = {2, 128, 320, 4, 2, 32, 512, 128, 1e-5f, AS_TIED};
  as_model* model = nullptr;
  check(as_model_new(&config, &model));
  std::vector<float> cos(128 * 16), sin(128 * 16), gain(128, 1.0f);
  for (int i = 0; i < 128 * 16; i++) {
    cos[i] = cosf(0.01f * i);
    sin[i] = sinf(0.01f * i);
  }
  check(as_model_rope(model, cos.data(), sin.data()));

  uint32_t state = 1;
  const int shapes[][3] = {{AS_QUERY, 128, 128}, {AS_KEY, 64, 128},  {AS_VALUE, 64, 128},
                           {AS_GATE, 320, 128},  {AS_UP, 320, 128},  {AS_DOWN, 128, 320},
                           {AS_ATTENTION_OUTPUT, 128, 128}};
  const auto give = [&](int layer, int which, int height, int width, as_format format) {
    const std::vector<uint8_t> data = blocks(height, width, format, &state);
    check(as_model_weight(model, layer, which, format, data.data(), height, width, nullptr));
  };
  give(0, AS_EMBEDDING, 512, 128, AS_Q8_0);
  for (int layer = 0; layer < config.layers; layer++) {
    for (const auto& [which, height, width] : shapes) {
      give(layer, which, height, width, which == AS_DOWN ? AS_Q8_0 : AS_Q4_1);
    }
    check(as_model_norm(model, layer, AS_NORM_ATTENTION, gain.data(), 128));
    check(as_model_norm(model, layer, AS_NORM_FFN, gain.data(), 128));
  }
  check(as_model_norm(model, 0, AS_NORM_OUTPUT, gain.data(), 128));
  check(as_model_ready(model));

  as_cache* cache = nullptr;
  check(as_cache_new(model, 128, &cache));
  std::vector<int32_t> tokens(128);
  for (int i = 0; i < 128; i++) tokens[i] = i * 37 % 512;
  std::vector<float> logits(static_cast<size_t>(rows) * 512);
  as_rows part = {};
  part.cache = cache;
  as_pass pass = {};
  pass.sequence_count = 1;
  pass.mode = mode;
  pass.threads = 1;
  pass.sequences = &part;
  part.tokens = tokens.data();
  part.rows = context;
  check(as_forward(model, &pass));
  std::vector<int32_t> path(context);
  for (int i = 0; i < context; i++) path[i] = i;
  check(as_cache_commit(cache, path.data(), context));
  part.rows = part.asked_count = rows;
  pass.logits = logits.data();
  check(counted(model, &pass));
  for (float value : logits) {
    if (!isfinite(value)) return 3;
  }
  return 0;
}
