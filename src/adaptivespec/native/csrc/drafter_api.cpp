// The C boundary of the drafter.
#include "boundary.h"
#include "draft.h"

struct as_head {
  std::shared_ptr<as::Head> head;
};

struct as_draft {
  std::unique_ptr<as::Draft> draft;
};

namespace {

using as::guarded;

as::Head& checked(const as_head* head) {
  as::check_pointer("head", head);
  return *head->head;
}

as::Hold<as::Draft> held(const as_draft* draft) {
  as::check_pointer("draft", draft);
  return as::Hold<as::Draft>(*draft->draft, "draft");
}

}  // namespace

extern "C" {

int32_t as_head_new(const as_model* model, const as_head_config* config, as_head** head) {
  return guarded([&] {
    as::checked(model);
    as::check_pointer("config", config);
    as::check_pointer("head", head);
    *head = new as_head{std::make_shared<as::Head>(model->model, *config)};
  });
}

int32_t as_head_free(as_head* head) {
  return guarded([&] { delete head; });
}

int32_t as_head_rope(as_head* head, const float* cos, const float* sin) {
  return guarded([&] { checked(head).set_rope(cos, sin); });
}

int32_t as_head_weight(as_head* head, int32_t which, int32_t format, const void* data, int32_t rows,
                       int32_t columns) {
  return guarded([&] { checked(head).set_weight(which, format, data, rows, columns); });
}

int32_t as_head_norm(as_head* head, int32_t which, const float* gain, int32_t size) {
  return guarded([&] { checked(head).set_norm(which, gain, size); });
}

int32_t as_head_words(as_head* head, const int32_t* target_ids, int32_t size) {
  return guarded([&] { checked(head).set_words(target_ids, size); });
}

int32_t as_head_ready(as_head* head) {
  return guarded([&] { checked(head).make_ready(); });
}

int32_t as_head_bytes(const as_head* head, int64_t* bytes) {
  return guarded([&] {
    as::check_pointer("bytes", bytes);
    *bytes = static_cast<int64_t>(checked(head).bytes());
  });
}

int32_t as_draft_new(as_head* head, int32_t capacity, as_draft** draft) {
  return guarded([&] {
    checked(head).check_ready();
    as::check_pointer("draft", draft);
    *draft = new as_draft{std::make_unique<as::Draft>(head->head, capacity)};
  });
}

int32_t as_draft_free(as_draft* draft) {
  return guarded([&] {
    if (draft == nullptr) return;
    { const auto wait = held(draft); }
    delete draft;
  });
}

int32_t as_draft_length(const as_draft* draft, int32_t* length) {
  return guarded([&] {
    as::check_pointer("length", length);
    *length = held(draft)->length();
  });
}

int32_t as_draft_truncate(as_draft* draft, int32_t length) {
  return guarded([&] { held(draft)->truncate(length); });
}

int32_t as_draft_copy(as_draft* draft, const as_draft* other, int32_t rows) {
  return guarded([&] {
    const auto to = held(draft);
    const auto from = held(other);
    to->copy(*from, rows);
  });
}

int32_t as_draft_read(as_draft* draft, int32_t mode, int32_t threads, int32_t rows,
                      const int32_t* tokens, const float* taps, float* confidence) {
  return guarded([&] {
    as::check_pointer("confidence", confidence);
    *confidence = held(draft)->read(static_cast<as_mode>(mode), threads, rows, tokens, taps);
  });
}

int32_t as_draft_level(as_draft* draft, const as_level* level) {
  return guarded([&] {
    as::check_pointer("level", level);
    held(draft)->expand(*level);
  });
}

int32_t as_draft_grow(as_draft* draft, int32_t mode, int32_t threads, const as_plan* plan,
                      as_tree* tree) {
  return guarded([&] {
    as::check_pointer("plan", plan);
    as::check_pointer("tree", tree);
    held(draft)->grow(static_cast<as_mode>(mode), threads, *plan, *tree);
  });
}

}  // extern "C"
