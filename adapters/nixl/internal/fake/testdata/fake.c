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
 *
 * Every other peer works. The metadata of a peer is its name. The parameter "fault" of
 * the backend fails the start: "backend", "abort" or "hang".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { success = 0, in_progress = 1, invalid = -1, backend = -2, not_found = -6 };
enum { looks_of_late = 2000, most = 1024, names = 64, name_bytes = 256 };

typedef struct { uintptr_t addr; size_t len; } desc;
typedef struct { desc d[most]; int n; } list;
typedef struct { bool write; list from, to; char peer[name_bytes]; int looks; bool released; } request;
typedef struct { char from[name_bytes]; char *text; size_t len; } notif;
typedef struct { notif n[most]; int count; } mail;

static char own[name_bytes], fault[name_bytes], peers[names][name_bytes];
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
  return success;
}
API(create_backend)(void *a, const char *name, void *p, void **out) {
  (void)a; (void)name; (void)p;
  if (!strcmp(fault, "abort")) {
    fprintf(stderr, "fatal: the backend gives up\n");
    abort();
  }
  if (!strcmp(fault, "hang")) for (;;) pause();
  if (!strcmp(fault, "backend")) return backend;
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
API(register_mem)(void *a, void *l, void *o) { (void)a; (void)l; (void)o; return success; }
API(deregister_mem)(void *a, void *l, void *o) { (void)a; (void)l; (void)o; return success; }
API(get_local_md)(void *a, void **data, size_t *len) {
  (void)a;
  *len = strlen(own);
  *data = memcpy(malloc(*len + 1), own, *len);
  return success;
}
API(load_remote_md)(void *a, const void *data, size_t len, char **name) {
  (void)a;
  if (len == 0 || len >= name_bytes) return invalid;
  char n[name_bytes] = {0};
  memcpy(n, data, len);
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
  peers[i][0] = 0;
  return success;
}
API(create_xfer_dlist)(int type, void **out) { (void)type; return new_list(out); }
API(destroy_xfer_dlist)(void *l) { return drop(l); }
API(xfer_dlist_add_desc)(void *l, uintptr_t addr, size_t len, uint64_t dev) { (void)dev; return add(l, addr, len); }
API(create_xfer_req)(void *a, int op, void *local, void *remote, const char *peer, void **out, void *o) {
  (void)a; (void)o;
  if (known(peer) < 0 || !strcmp(peer, "fail")) return backend;
  request *r = calloc(1, sizeof *r);
  r->write = op == 1;
  r->from = *(list *)(r->write ? local : remote);
  r->to = *(list *)(r->write ? remote : local);
  snprintf(r->peer, sizeof r->peer, "%s", peer);
  *out = r;
  return success;
}
API(post_xfer_req)(void *a, void *q, void *o) {
  (void)a; (void)o;
  request *r = q;
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
  if (!strcmp(r->peer, "never")) return in_progress;
  if (!strcmp(r->peer, "breaks")) return backend;
  if (!strcmp(r->peer, "late") && r->looks++ < looks_of_late) return in_progress;
  for (int i = 0; i < r->from.n; i++) memcpy((void *)r->to.d[i].addr, (void *)r->from.d[i].addr, r->from.d[i].len);
  return success;
}
API(release_xfer_req)(void *a, void *q) { (void)a; ((request *)q)->released = true; return success; }
API(destroy_xfer_req)(void *q) { return ((request *)q)->released ? drop(q) : -3; }
API(create_notif_map)(void **out) { *out = calloc(1, sizeof(mail)); return success; }
API(destroy_notif_map)(void *m) { return drop(m); }
API(notif_map_clear)(void *m) { ((mail *)m)->count = 0; return success; }
API(get_notifs)(void *a, void *m, void *o) {
  (void)a; (void)o;
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
  if (known(peer) < 0 || !strcmp(peer, "fail")) return backend;
  if (!strcmp(peer, "echo")) keep(&box, peer, text, len);
  return success;
}
