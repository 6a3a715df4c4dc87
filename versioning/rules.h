#ifndef VERSIONING_RULES_H
#define VERSIONING_RULES_H

#include <stdbool.h>

/*
 * The rules of docs/mechanisms.md that the pure code and the driver state one by one: name, section, what it says. In
 * ordinary builds sync_rule_on() is the constant true. The simulator is compiled with HOLDFAST_RULE_SWITCH, takes one
 * rule away at a time and must find that it is missed (section 11).
 */
/* clang-format off */
#define SYNC_RULES(X)                                                                                                  \
    X(RULE_LOOK_FIRST,     "1, INV-10", "the next request starts only when the last outcome is known: look first")     \
    X(RULE_REFUSED_LOOKS,  "1, INV-10", "a refused PUT may be our own earlier attempt: look before calling it a conflict") \
    X(RULE_PUT_CONDITION,  "1, INV-15", "a file key is written only by a conditional PUT")                             \
    X(RULE_PLAIN_PUT,      "1, INV-15", "a rename never copies onto a file key")                                       \
    X(RULE_EVACUATE,       "1",         "a commit to a key that another node owns first evacuates the owner")          \
    X(RULE_PARK,           "1",         "a cycle of renames is broken by parking an owner's bytes")                    \
    X(RULE_MERGE,          "1",         "rm + create on one key merge into one PUT whose base is the key's version")   \
    X(RULE_SERIAL_KEY,     "1",         "intents are serial per key")                                                  \
    X(RULE_BASE,           "INV-3",     "every write names its base: what the tree knew, not what lies there now")     \
    X(RULE_FOREIGN,        "INV-3",     "a foreign object at a new or moved name is a conflict, not a base")           \
    X(RULE_EQUAL_PUT,      "INV-3",     "equal bytes are no conflict, but only a PUT or a later look proves they lie there") \
    X(RULE_NOT_RESURRECT,  "1, S26",    "a dirty file that was deleted underneath is a conflict, not written again")   \
    X(RULE_DELETE_MATCH,   "6",         "DELETE carries If-Match")                                                     \
    X(RULE_DELETE_CHECK,   "6",         "where DELETE ignores conditions, HEAD must show the version first")           \
    X(RULE_DISCARD_LATE,   "7, INV-15", "an object is discarded only when its bytes are verified elsewhere")           \
    X(RULE_KEEP_LOSER,     "INV-3",     "the loser's bytes of a conflict are kept")                                    \
    X(RULE_CLEAN_ONLY,     "8",         "a foreign version takes a name only where the tree is not dirty")             \
    X(RULE_LATE_OURS,      "6",         "an older version of ours that came back is known as ours and replaced")       \
    X(RULE_ABA,            "6",         "no write restores an ETag that an unanswered request names as its condition") \
    X(RULE_LANDED_HOME,    "7",         "what lands where its file no longer is, is not the file's newest version")        \
    X(RULE_LANDED,         "4, INV-10", "landed means version, size and md5 agree, never the id alone")                \
    X(RULE_BELIEVED,       "4",         "metadata counts only if size and md5 agree: other clients carry it along")    \
    X(RULE_LEASE_WEAK,     "6, INV-3",  "where one kind of condition is ignored, every write is under the lease")            \
    X(RULE_LEASE_STOP,     "6",         "the holder stops at two thirds of the time to live")                          \
    X(RULE_LEASE_SENT,     "6",         "the holder counts from sending a renewal, not from its answer")               \
    X(RULE_LEASE_UNCHANGED, "6",        "a taker must see the record unchanged for time to live + deadline")           \
    X(RULE_EVICT,          "2, INV-7",  "LIVE and FROZEN bytes, and bytes that an attempt needs, are never evicted")   \
    X(RULE_FROZEN,         "2",         "FROZEN bytes whose upload was sent are copied, not changed")                  \
    X(RULE_TORN,           "3",         "a save that nobody promised is kept aside as torn: old or new, never half")   \
    X(RULE_DURABLE,        "3",         "after an unclean boot bytes without a durable mark replace nothing")          \
    X(RULE_VERIFY,         "3",         "after an unclean boot a CLEAN file counts only if durable or verified")       \
    X(RULE_LIVE_ROW,       "2, 3",      "the row that says LIVE is durable before the bytes change in place")          \
    X(RULE_REPLACE_DURABLE, "3, S9",    "bytes that replace an fsynced version are durable first: old or new, never neither") \
    X(RULE_UNLINK_DURABLE, "3",         "a content file is removed only when the end of its row is durable")           \
    X(RULE_ATTEMPT_ROW,    "1, INV-2",  "the attempt is in the index before the request is sent")                      \
    X(RULE_ATTEMPT_FULL,   "1, INV-2",  "and durably: what made the old bytes unneeded outlives a power cut")          \
    X(RULE_PRESERVE,       "5, promise 3", "what is replaced or deleted is copied to the history first")                  \
    X(RULE_FETCH_MATCH,    "4, INV-1",  "every GET names the ETag that it expects")                                    \
    X(RULE_LISTING,        "8",         "a listing judges only keys unchanged since it began")
/* clang-format on */

enum sync_rule {
#define X(name, section, text) name,
    SYNC_RULES(X)
#undef X
        RULE_COUNT
};

#ifdef HOLDFAST_RULE_SWITCH
bool sync_rule_on(int rule);
#else
#define sync_rule_on(rule) true
#endif

#endif
