/* A libnixl_capi.so for tests: one agent, whose peers are in its own process. The name
 * of a peer says what becomes of a call that is about it:
 *
 *   fail     every call fails
 *   abort    a transfer ends the process
 *   hang     a transfer never comes back from its call
 *   never    a transfer never ends
 *   late     a transfer ends after many looks
 *   breaks   a transfer fails while it is under way
 *   echo     notifications to it come back, as from it
 *   mute     notifications to it fail, but for the first one
 *
 * Every other peer works. The metadata of a peer is its name, or begins as that of the
 * real library does. The parameter "fault" of the backend fails the start: "backend",
 * "abort" or "hang". The parameter "broken_by" names a file: while that is there, every
 * call fails.
 *
 * It ends the process where the real one would be harmed: by a peer that is added right
 * after it was removed, by a transfer that is released while it is under way, and by a
 * list that is released before its transfers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { success = 0, in_progress = 1, invalid = -1, backend = -2, not_found = -6 };
enum { looks_of_late = 2000, most = 1024, names = 64, name_bytes = 256, cool_down_ms = 500 };

typedef struct { uintptr_t addr; size_t len; } desc;
typedef struct { desc d[most]; int n; } list;
typedef struct { list l; char peer[name_bytes]; int users; } prepared;
typedef struct { bool write; list from, to; char peer[name_bytes]; int looks; bool ended, released; prepared *made_of[2]; } request;
typedef struct { char from[name_bytes]; char *text; size_t len; } notif;
typedef struct { notif n[most]; int count; } mail;

static char own[name_bytes], fault[name_bytes], broken_by[4096], peers[names][name_bytes], removed[names][name_bytes];
static struct timespec removed_at[names];
static int removals;
static bool broken(void) { return *broken_by && !access(broken_by, F_OK); }
static void harm(const char *why) {
  fprintf(stderr, "Assertion `%s' failed\n", why);
  abort();
}
static mail box;
static int known(const char *name) {
  for (int i = 0; i < names; i++)
    if (peers[i][0] && !strcmp(peers[i], name)) return i;
  return -1;
}
static void keep(mail *m, const char *from, const void *text, size_t len) {
  if (m->count == most) abort();
  notif *n = &m->n[m->count++];
  snprintf(n->from, sizeof n->from, "%s", from);
  n->text = memcpy(malloc(len + 1), text, len);
  n->len = len;
}
static int handle(void **out) { *out = malloc(1); return success; }
static int drop(void *h) { free(h); return success; }

#define API(name) int nixl_capi_##name

bool nixl_capi_is_stub(void) { return false; }
API(create_configured_agent)(const char *name, const void *cfg, void **out) {
  (void)cfg;
  snprintf(own, sizeof own, "%s", name);
  return handle(out);
}
API(destroy_agent)(void *a) { return drop(a); }
API(get_available_plugins)(void *a, void **out) { (void)a; return handle(out); }
API(string_list_size)(void *l, size_t *n) { (void)l; *n = 1; return success; }
API(string_list_get)(void *l, size_t i, const char **out) { (void)l; (void)i; *out = "FAKE"; return success; }
API(destroy_string_list)(void *l) { return drop(l); }
API(get_plugin_params)(void *a, const char *name, void **mems, void **params) {
  (void)a;
  if (strcmp(name, "FAKE")) return backend;
  handle(mems);
  return handle(params);
}
API(destroy_mem_list)(void *m) { return drop(m); }
API(destroy_params)(void *p) { return drop(p); }
API(params_add)(void *p, const char *key, const char *value) {
  (void)p;
  if (!strcmp(key, "fault")) snprintf(fault, sizeof fault, "%s", value);
  if (!strcmp(key, "broken_by")) snprintf(broken_by, sizeof broken_by, "%s", value);
  return success;
}
API(create_backend)(void *a, const char *name, void *p, void **out) {
  (void)a; (void)name; (void)p;
  if (!strcmp(fault, "abort")) {
    fprintf(stderr, "fatal: the backend gives up\n");
    abort();
  }
  if (!strcmp(fault, "hang")) for (;;) pause();
  if (!strcmp(fault, "backend") || broken()) return backend;
  return handle(out);
}
API(destroy_backend)(void *b) { return drop(b); }

API(create_opt_args)(void **out) { return handle(out); }
API(destroy_opt_args)(void *o) { return drop(o); }
API(opt_args_add_backend)(void *o, void *b) { (void)o; (void)b; return success; }
API(opt_args_set_notif_msg)(void *o, const void *text, size_t len) { (void)o; (void)text; (void)len; return success; }
API(opt_args_set_has_notif)(void *o, bool has) { (void)o; (void)has; return success; }

static int new_list(void **out) { *out = calloc(1, sizeof(list)); return success; }
static int add(list *l, uintptr_t addr, size_t len) {
  if (l->n == most) return invalid;
  l->d[l->n++] = (desc){addr, len};
  return success;
}
API(create_reg_dlist)(int type, void **out) { (void)type; return new_list(out); }
API(destroy_reg_dlist)(void *l) { return drop(l); }
API(reg_dlist_add_desc)(void *l, uintptr_t addr, size_t len, uint64_t dev, const void *meta, size_t n) {
  (void)dev; (void)meta; (void)n;
  return add(l, addr, len);
}
API(register_mem)(void *a, void *l, void *o) { (void)a; (void)l; (void)o; return broken() ? backend : success; }
API(deregister_mem)(void *a, void *l, void *o) { (void)a; (void)l; (void)o; return success; }
API(get_local_md)(void *a, void **data, size_t *len) {
  (void)a;
  *len = strlen(own);
  *data = memcpy(malloc(*len + 1), own, *len);
  return success;
}
static void check_cool_down(const char *name) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (int i = 0; i < names; i++) {
    long ms = (now.tv_sec - removed_at[i].tv_sec) * 1000 + (now.tv_nsec - removed_at[i].tv_nsec) / 1000000;
    if (!strcmp(removed[i], name) && ms < cool_down_ms) harm("a peer was added right after it was removed");
  }
}
API(load_remote_md)(void *a, const void *data, size_t len, char **name) {
  (void)a;
  if (broken()) return backend;
  static const char begin[] = "nixlSerDes|Agent";
  size_t at = sizeof begin - 1;
  if (len > at + 8 && !memcmp(data, begin, at)) {
    uint64_t n;
    memcpy(&n, (const char *)data + at, sizeof n);
    if (n > len - at - 8) return invalid;
    data = (const char *)data + at + 8;
    len = n;
  }
  if (len == 0 || len >= name_bytes) return invalid;
  char n[name_bytes] = {0};
  memcpy(n, data, len);
  check_cool_down(n);
  if (known(n) < 0)
    for (int i = 0; i < names; i++)
      if (!peers[i][0]) { memcpy(peers[i], n, sizeof n); break; }
  *name = strdup(n);
  return success;
}
API(invalidate_remote_md)(void *a, const char *name) {
  (void)a;
  int i = known(name);
  if (i < 0) return not_found;
  int k = removals++ % names;
  snprintf(removed[k], sizeof removed[k], "%s", name);
  clock_gettime(CLOCK_MONOTONIC, &removed_at[k]);
  peers[i][0] = 0;
  return success;
}
API(create_xfer_dlist)(int type, void **out) { (void)type; return new_list(out); }
API(destroy_xfer_dlist)(void *l) { return drop(l); }
API(xfer_dlist_add_desc)(void *l, uintptr_t addr, size_t len, uint64_t dev) { (void)dev; return add(l, addr, len); }
API(create_xfer_req)(void *a, int op, void *local, void *remote, const char *peer, void **out, void *o) {
  (void)a; (void)o;
  if (known(peer) < 0 || !strcmp(peer, "fail") || broken()) return backend;
  request *r = calloc(1, sizeof *r);
  r->write = op == 1;
  r->from = *(list *)(r->write ? local : remote);
  r->to = *(list *)(r->write ? remote : local);
  snprintf(r->peer, sizeof r->peer, "%s", peer);
  *out = r;
  return success;
}
API(prep_xfer_dlist)(void *a, const char *peer, void *l, void **out, void *o) {
  (void)a; (void)o;
  if (*peer && (known(peer) < 0 || !strcmp(peer, "fail") || broken())) return backend;
  prepared *p = calloc(1, sizeof *p);
  p->l = *(list *)l;
  snprintf(p->peer, sizeof p->peer, "%s", peer);
  *out = p;
  return success;
}
API(release_xfer_dlist_handle)(void *a, void *p) {
  (void)a;
  if (((prepared *)p)->users) harm("a list was released before its transfers");
  return drop(p);
}
static void choose(list *to, const list *from, const int *at, size_t n) {
  for (size_t i = 0; i < n; i++) to->d[to->n++] = from->d[at[i]];
}
API(make_xfer_req)(void *a, int op, void *local, const int *li, size_t ln, void *remote, const int *ri, size_t rn, void **out, void *o) {
  (void)a; (void)o;
  prepared *here = local, *there = remote;
  if (ln != rn || ln > most || known(there->peer) < 0 || broken()) return backend;
  request *r = calloc(1, sizeof *r);
  r->write = op == 1;
  choose(r->write ? &r->from : &r->to, &here->l, li, ln);
  choose(r->write ? &r->to : &r->from, &there->l, ri, rn);
  snprintf(r->peer, sizeof r->peer, "%s", there->peer);
  r->made_of[0] = here;
  r->made_of[1] = there;
  here->users++;
  there->users++;
  *out = r;
  return success;
}
API(post_xfer_req)(void *a, void *q, void *o) {
  (void)a; (void)o;
  request *r = q;
  r->ended = false;
  r->looks = 0;
  if (broken() || known(r->peer) < 0) {
    r->ended = true;
    return backend;
  }
  if (!strcmp(r->peer, "abort")) {
    fprintf(stderr, "Assertion `endpoint' failed\n");
    abort();
  }
  if (!strcmp(r->peer, "hang")) for (;;) pause();
  return in_progress;
}
API(get_xfer_status)(void *a, void *q) {
  (void)a;
  request *r = q;
  if (!strncmp(r->peer, "never", 5)) return in_progress;
  r->ended = true;
  if (!strcmp(r->peer, "breaks") || broken()) return backend;
  if (!strcmp(r->peer, "late") && r->looks++ < looks_of_late) {
    r->ended = false;
    return in_progress;
  }
  for (int i = 0; i < r->from.n; i++) memcpy((void *)r->to.d[i].addr, (void *)r->from.d[i].addr, r->from.d[i].len);
  return success;
}
API(release_xfer_req)(void *a, void *q) {
  (void)a;
  request *r = q;
  if (!r->ended) harm("a transfer was released while it was under way");
  for (int i = 0; i < 2; i++)
    if (r->made_of[i]) r->made_of[i]->users--;
  r->released = true;
  return success;
}
API(destroy_xfer_req)(void *q) { return ((request *)q)->released ? drop(q) : -3; }
API(create_notif_map)(void **out) { *out = calloc(1, sizeof(mail)); return success; }
API(destroy_notif_map)(void *m) { return drop(m); }
API(notif_map_clear)(void *m) { ((mail *)m)->count = 0; return success; }
API(get_notifs)(void *a, void *m, void *o) {
  (void)a; (void)o;
  if (broken()) return backend;
  for (int i = 0; i < box.count; i++) keep(m, box.n[i].from, box.n[i].text, box.n[i].len);
  box.count = 0;
  return success;
}
/* All notifications are from "echo". */
API(notif_map_size)(void *m, size_t *n) { *n = ((mail *)m)->count > 0; return success; }
API(notif_map_get_agent_at)(void *m, size_t i, const char **out) { *out = ((mail *)m)->n[i].from; return success; }
API(notif_map_get_notifs_size)(void *m, const char *from, size_t *n) { (void)from; *n = ((mail *)m)->count; return success; }
API(notif_map_get_notif)(void *m, const char *from, size_t i, const void **b, size_t *n) {
  (void)from;
  *b = ((mail *)m)->n[i].text;
  *n = ((mail *)m)->n[i].len;
  return success;
}
API(gen_notif)(void *a, const char *peer, const void *text, size_t len, void *o) {
  (void)a; (void)o;
  if (known(peer) < 0 || !strcmp(peer, "fail") || broken()) return backend;
  static int told;
  if (!strcmp(peer, "mute") && told++) return backend;
  if (!strcmp(peer, "echo")) keep(&box, peer, text, len);
  return success;
}
