/* A client of libpmix: what each task prints is compared by test_pmix.py. */
#include <pmix.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pmix_proc_t me, all, other;

#define MUST(call) must((call), __LINE__)
static void must(pmix_status_t status, int line) {
    if (status != PMIX_SUCCESS) {
        printf("%u line %d: %s\n", me.rank, line, PMIx_Error_string(status));
        exit(1);
    }
}

static long number(pmix_rank_t rank, const char *key) {
    pmix_value_t *value;
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    if (PMIx_Get(&proc, key, NULL, 0, &value)) return -1;
    switch (value->type) {
        case PMIX_UINT32: return value->data.uint32;
        case PMIX_UINT16: return value->data.uint16;
        case PMIX_PROC_RANK: return value->data.rank;
    }
    return -2;
}

static const char *name(pmix_status_t status) { /* the library's own names differ from version to version */
    switch (status) {
        case PMIX_SUCCESS: return "success";
        case PMIX_ERR_NOT_FOUND: return "not found";
        case PMIX_ERR_DUPLICATE_KEY: return "duplicate key";
        case PMIX_ERR_TIMEOUT: return "timeout";
    }
    return PMIx_Error_string(status);
}

static const char *text(const pmix_proc_t *proc, const char *key) {
    pmix_value_t *value;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    return status ? name(status) : value->data.string;
}

static void put(const char *key) {
    pmix_value_t value;
    char words[100];
    snprintf(words, sizeof words, "%s of %u", key, me.rank);
    PMIX_VALUE_LOAD(&value, words, PMIX_STRING);
    MUST(PMIx_Put(PMIX_GLOBAL, key, &value));
    MUST(PMIx_Commit());
}

static const char *look_up(const char *key, pmix_info_t *options, size_t count) {
    static char words[600];
    pmix_pdata_t found;
    PMIX_PDATA_CONSTRUCT(&found);
    strcpy(found.key, key);
    pmix_status_t status = PMIx_Lookup(&found, 1, options, count);
    if (status) return name(status);
    snprintf(words, sizeof words, "%s by %u", found.value.data.string, found.proc.rank);
    return words;
}

int main(void) {
    pmix_info_t info, options[2];
    pmix_proc_t some[2], *peers;
    size_t peer_count;
    char *nodes, *keys[] = {"port", NULL};
    bool yes = true;
    int zero = 0, one = 1;
    MUST(PMIx_Init(&me, NULL, 0));
    long size = number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    PMIX_LOAD_PROCID(&other, me.nspace, (me.rank + 1) % size);

    put("fetched"); /* a fence without data: what others have put is asked for, one by one */
    MUST(PMIx_Fence(NULL, 0, NULL, 0));
    printf("%u %s\n", me.rank, text(&other, "fetched"));
    put("collected");
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    MUST(PMIx_Fence(&all, 1, &info, 1));
    printf("%u %s\n", me.rank, text(&other, "collected"));
    PMIX_LOAD_PROCID(&some[0], me.nspace, 0);
    PMIX_LOAD_PROCID(&some[1], me.nspace, 2);
    if (me.rank == 0 || me.rank == 2) MUST(PMIx_Fence(some, 2, NULL, 0));
    MUST(PMIx_Connect(&all, 1, NULL, 0));
    MUST(PMIx_Disconnect(&all, 1, NULL, 0));

    PMIX_INFO_LOAD(&options[0], PMIX_WAIT, &zero, PMIX_INT); /* for all of them */
    PMIX_INFO_LOAD(&options[1], PMIX_TIMEOUT, &one, PMIX_INT);
    if (me.rank == size - 1) {
        PMIX_INFO_LOAD(&info, "port", "17", PMIX_STRING);
        MUST(PMIx_Publish(&info, 1));
        printf("%u again: %s\n", me.rank, name(PMIx_Publish(&info, 1)));
    }
    PMIX_INFO_LOAD(&info, PMIX_WAIT, &yes, PMIX_BOOL); /* as Open MPI 4 asks */
    printf("%u port %s\n", me.rank, look_up("port", me.rank % 2 ? &info : options, 1));
    printf("%u now: %s\n", me.rank, look_up("nosuch", NULL, 0));
    printf("%u in time: %s\n", me.rank, look_up("nosuch", options, 2));
    MUST(PMIx_Fence(NULL, 0, NULL, 0));
    if (me.rank == size - 1) MUST(PMIx_Unpublish(keys, NULL, 0));
    MUST(PMIx_Fence(NULL, 0, NULL, 0));
    printf("%u gone: %s\n", me.rank, look_up("port", NULL, 0));

    printf("%u local %ld place %ld app %ld next %s %ld\n", me.rank, number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE),
           number(me.rank, PMIX_LOCAL_RANK), number(me.rank, PMIX_APPNUM), text(&other, PMIX_HOSTNAME),
           number(other.rank, PMIX_LOCAL_RANK));
    MUST(PMIx_Resolve_peers(text(&other, PMIX_HOSTNAME), me.nspace, &peers, &peer_count));
    MUST(PMIx_Resolve_nodes(me.nspace, &nodes));
    printf("%u peers %zu nodes %s\n", me.rank, peer_count, nodes);
    text(&other, "never put"); /* whoever is asked may have ended */
    MUST(PMIx_Finalize(NULL, 0));
    return 0;
}
