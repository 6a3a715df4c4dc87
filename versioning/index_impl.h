#ifndef VERSIONING_INDEX_IMPL_H
#define VERSIONING_INDEX_IMPL_H

#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/scope.h"
#include "versioning/index.h"

/*
 * What the files of the index share. Locks in taking order, none held while another connection's lock is taken:
 *   life (rwlock: readers share it, close takes it) → registry (in index_read.c) ; queue.mutex ; checkpoint.mutex ; durable.mutex
 */

#define INDEX_APPLICATION_ID 0x48466978 /* "HFix" */
#define INDEX_PAGE_SIZE 4096
#define INDEX_PAGE_RESERVE 8 /* bytes at the end of each page: crc32c, then zeros (index_vfs.c) */

/* ---- rows: tables of columns, so that binding, reading and checksums exist once ---- */
enum index_column_kind {
    COLUMN_INT,  /* signed, by size */
    COLUMN_UINT, /* unsigned, by size; 64 bits keep their pattern */
    COLUMN_BOOL,
    COLUMN_LATER, /* 64 bits, signed, added by a later format: 0 in the rows of before, whose crc lacks it */
    COLUMN_TEXT, /* NUL-terminated array, ASCII */
    COLUMN_BYTES, /* NUL-terminated array of any bytes: names, keys, paths (BLOB, so bytewise order) */
};

struct index_column {
    const char *name;
    enum index_column_kind kind;
    size_t offset;
    size_t size;
};

/* The first column is the primary key. A column `crc` follows the last one. */
struct index_table {
    const char *name;
    const struct index_column *columns;
    unsigned count;
    size_t row_size;
};

/* NOLINTBEGIN(bugprone-macro-parentheses): a type and a field stand alone */
#define INDEX_COLUMN_AS(type, kind, name, field)                                             \
    {                                                                                        \
        name, COLUMN_##kind, offsetof(struct type, field), sizeof(((struct type *)0)->field) \
    }
#define INDEX_COLUMN(type, kind, field) INDEX_COLUMN_AS(type, kind, #field, field)
#define INDEX_TABLE(type, table, list)                                   \
    {                                                                    \
        table, list, sizeof(list) / sizeof(list[0]), sizeof(struct type) \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

/* The one row of table counters: written once per transaction. Numbers are never given twice. */
enum index_counter {
    COUNTER_VOLUME,
    COUNTER_NODE,
    COUNTER_CONTENT,
    COUNTER_VERSION,
    COUNTER_MOUNT,
    COUNTER_COUNT
};
struct index_counters {
    int64_t id; /* 1 */
    uint64_t sequence;
    int64_t last[COUNTER_COUNT];
};

extern const struct index_table index_table_extras, index_table_links;
extern const struct index_table index_table_counters, index_table_meta, index_table_volumes,
    index_table_nodes, index_table_keys, index_table_contents, index_table_intents,
    index_table_versions, index_table_conflicts, index_table_answers, index_table_mounts,
    index_table_uploads, index_table_history, index_table_changes, index_table_snapshots,
    index_table_stale, index_table_runs, index_table_tokens, index_table_sessions,
    index_table_shares;

/* ---- statements ---- */
/* X(name, form, table or NULL, text). Forms: RAW text; SELECT, DELETE: head + text; INSERT, REPLACE; UPDATE: by primary
 * key. */
#define INDEX_STATEMENTS(X)                                                                        \
    X(BEGIN_READ, RAW, NULL, "BEGIN")                                                              \
    X(BEGIN_WRITE, RAW, NULL, "BEGIN IMMEDIATE")                                                   \
    X(COMMIT, RAW, NULL, "COMMIT")                                                                 \
    X(ROLLBACK, RAW, NULL, "ROLLBACK")                                                             \
    X(SAVEPOINT, RAW, NULL, "SAVEPOINT op")                                                        \
    X(RELEASE, RAW, NULL, "RELEASE op")                                                            \
    X(ROLLBACK_TO, RAW, NULL, "ROLLBACK TO op")                                                    \
    X(COUNTERS_GET, SELECT, &index_table_counters, "WHERE id = 1")                                 \
    X(COUNTERS_PUT, REPLACE, &index_table_counters, "")                                            \
    X(META_GET, SELECT, &index_table_meta, "WHERE name = ?1")                                      \
    X(META_PUT, REPLACE, &index_table_meta, "")                                                    \
    X(VOLUME_GET, SELECT, &index_table_volumes, "WHERE id = ?1")                                   \
    X(VOLUME_FIND, SELECT, &index_table_volumes, "WHERE name = ?1")                                \
    X(VOLUME_EACH, SELECT, &index_table_volumes, "ORDER BY id")                                    \
    X(VOLUME_INSERT, INSERT, &index_table_volumes, "")                                             \
    X(VOLUME_UPDATE, UPDATE, &index_table_volumes, "")                                             \
    X(VOLUME_DELETE, DELETE, &index_table_volumes, "WHERE id = ?1")                                \
    X(VOLUME_DELETE_NODES, DELETE, &index_table_nodes, "WHERE volume = ?1")                        \
    X(VOLUME_DELETE_KEYS, DELETE, &index_table_keys, "WHERE volume = ?1")                          \
    X(VOLUME_DELETE_CONTENTS, DELETE, &index_table_contents, "WHERE volume = ?1")                  \
    X(VOLUME_DELETE_INTENTS, DELETE, &index_table_intents, "WHERE volume = ?1")                    \
    X(VOLUME_DELETE_VERSIONS, DELETE, &index_table_versions, "WHERE volume = ?1")                  \
    X(VOLUME_DELETE_CONFLICTS, DELETE, &index_table_conflicts, "WHERE volume = ?1")                \
    X(VOLUME_DELETE_ANSWERS, DELETE, &index_table_answers,                                         \
      "WHERE connection IN (SELECT id FROM mounts WHERE volume = ?1)")                             \
    X(VOLUME_DELETE_MOUNTS, DELETE, &index_table_mounts, "WHERE volume = ?1")                      \
    X(VOLUME_DELETE_USAGE, RAW, NULL, "DELETE FROM usage WHERE volume = ?1")                       \
    X(NODE_GET, SELECT, &index_table_nodes, "WHERE id = ?1")                                       \
    X(NODE_CHILD, SELECT, &index_table_nodes, "WHERE parent = ?1 AND name = ?2 AND parent <> 0")   \
    X(NODE_CHILDREN, SELECT, &index_table_nodes, "WHERE parent = ?1 AND id > ?2 ORDER BY id")      \
    X(NODE_FOLDERS, SELECT, &index_table_nodes,                                                    \
      "INDEXED BY nodes_folders WHERE parent = ?1 AND kind = 2 AND id > ?2 ORDER BY id")           \
    X(NODE_NAMES, RAW, NULL,                                                                       \
      "SELECT name, id FROM nodes INDEXED BY nodes_name "                                          \
      "WHERE parent = ?1 AND parent <> 0 AND name > ?2 ORDER BY name LIMIT ?3")                    \
    X(NODE_BRIEF, RAW, NULL, "SELECT flags, content, size, mtime_ns FROM nodes WHERE id = ?1")     \
    X(NODE_FOLDERS_BRIEF, RAW, NULL,                                                               \
      "SELECT id, listed_ns, flags FROM nodes INDEXED BY nodes_folders "                           \
      "WHERE parent = ?1 AND kind = 2 ORDER BY id")                                                \
    X(NODE_ANY_CHILD, RAW, NULL, "SELECT EXISTS (SELECT 1 FROM nodes WHERE parent = ?1)")          \
    X(NODE_ORPHANS, SELECT, &index_table_nodes,                                                    \
      "WHERE parent = 0 AND (flags & 2) <> 0 AND id > ?1 ORDER BY id")                             \
    X(NODE_USAGE, RAW, NULL, "SELECT files, bytes FROM usage WHERE volume = ?1")                   \
    X(NODE_INSERT, INSERT, &index_table_nodes, "")                                                 \
    X(NODE_UPDATE, UPDATE, &index_table_nodes, "")                                                 \
    X(NODE_UPDATE_IN_PLACE, UPDATE_IN_PLACE, &index_table_nodes, "")                               \
    X(NODE_DELETE, DELETE, &index_table_nodes, "WHERE id = ?1")                                    \
    X(KEY_GET, SELECT, &index_table_keys, "WHERE key = ?1")                                        \
    X(KEY_FROM, SELECT, &index_table_keys, "WHERE key >= ?1 ORDER BY key")                         \
    X(KEY_PUT, REPLACE, &index_table_keys, "")                                                     \
    X(KEY_DELETE, DELETE, &index_table_keys, "WHERE key = ?1")                                     \
    X(EXTRA_GET, SELECT, &index_table_extras, "WHERE node = ?1")                                   \
    X(EXTRA_PUT, REPLACE, &index_table_extras, "")                                                 \
    X(EXTRA_DELETE, DELETE, &index_table_extras, "WHERE node = ?1")                                \
    X(XATTRS_GET, RAW, NULL, "SELECT data, crc FROM xattrs WHERE node = ?1")                       \
    X(XATTRS_PUT, RAW, NULL, "INSERT OR REPLACE INTO xattrs(node, data, crc) VALUES (?1, ?2, ?3)") \
    X(XATTRS_DELETE, RAW, NULL, "DELETE FROM xattrs WHERE node = ?1")                              \
    X(LINK_GET, SELECT, &index_table_links, "WHERE node = ?1")                                     \
    X(LINK_PUT, REPLACE, &index_table_links, "")                                                   \
    X(LINK_DELETE, DELETE, &index_table_links, "WHERE node = ?1")                                  \
    X(LINK_EACH, SELECT, &index_table_links, "WHERE inode = ?1 AND node > ?2 ORDER BY node")       \
    X(LINK_COUNT, RAW, NULL, "SELECT count(*) FROM links WHERE inode = ?1")                        \
    X(CONTENT_GET, SELECT, &index_table_contents, "WHERE id = ?1")                                 \
    X(CONTENT_EACH, SELECT, &index_table_contents, "ORDER BY id")                                  \
    X(CONTENT_EACH_STAGED, SELECT, &index_table_contents, "WHERE state <> 1 ORDER BY id")          \
    X(CONTENT_OF_NODE, SELECT, &index_table_contents, "WHERE node = ?1 ORDER BY id DESC")          \
    X(CONTENT_INSERT, INSERT, &index_table_contents, "")                                           \
    X(CONTENT_UPDATE, UPDATE, &index_table_contents, "")                                           \
    X(CONTENT_DELETE, DELETE, &index_table_contents, "WHERE id = ?1")                              \
    X(CONTENT_UNSYNCED_ALL, RAW, NULL,                                                             \
      "SELECT count(*), coalesce(sum(size) FILTER (WHERE state = 3), 0) "                          \
      "FROM contents WHERE state <> 1")                                                            \
    X(CONTENT_UNSYNCED, RAW, NULL,                                                                 \
      "SELECT count(*), coalesce(sum(size) FILTER (WHERE state = 3), 0) "                          \
      "FROM contents WHERE state <> 1 AND volume = ?1")                                            \
    X(INTENT_GET, SELECT, &index_table_intents, "WHERE key = ?1")                                  \
    X(INTENT_PUT, REPLACE, &index_table_intents, "")                                               \
    X(INTENT_DELETE, DELETE, &index_table_intents, "WHERE key = ?1")                               \
    X(INTENT_DUE, SELECT, &index_table_intents,                                                    \
      "WHERE not_before_ns <= ?1 ORDER BY not_before_ns, key")                                     \
    X(INTENT_LATER, SELECT, &index_table_intents,                                                  \
      "WHERE not_before_ns > ?1 ORDER BY not_before_ns, key")                                      \
    X(INTENT_EACH_ALL, SELECT, &index_table_intents, "WHERE key > ?1 ORDER BY key")                \
    X(INTENT_EACH, SELECT, &index_table_intents, "WHERE volume = ?2 AND key > ?1 ORDER BY key")    \
    X(INTENT_COUNT_ALL, RAW, NULL, "SELECT count(*) FROM intents")                                 \
    X(INTENT_COUNT, RAW, NULL, "SELECT count(*) FROM intents WHERE volume = ?1")                   \
    X(UPLOAD_PUT, REPLACE, &index_table_uploads, "")                                               \
    X(UPLOAD_DELETE, DELETE, &index_table_uploads, "WHERE id = ?1")                                \
    X(UPLOAD_EACH, SELECT, &index_table_uploads, "ORDER BY id")                                    \
    X(UPLOAD_OF_KEY, SELECT, &index_table_uploads, "WHERE key = ?1 ORDER BY id")                   \
    X(VERSION_INSERT, INSERT, &index_table_versions, "")                                           \
    X(VERSION_OF_NODE, SELECT, &index_table_versions, "WHERE node = ?1 ORDER BY id DESC")          \
    X(VERSION_FIND, SELECT, &index_table_versions, "WHERE version = ?1 ORDER BY id DESC")          \
    X(VERSION_OF_RUN, SELECT, &index_table_versions, "WHERE run = ?1 AND run <> x'' ORDER BY id")  \
    X(HISTORY_PUT, REPLACE, &index_table_history, "")                                              \
    X(HISTORY_GET, SELECT, &index_table_history, "WHERE id = ?1")                                  \
    X(HISTORY_DELETE, DELETE, &index_table_history, "WHERE id = ?1")                               \
    X(HISTORY_AT, SELECT, &index_table_history,                                                    \
      "WHERE volume = ?1 AND path = ?2 ORDER BY id DESC")                                          \
    X(HISTORY_BELOW, SELECT, &index_table_history,                                                 \
      "WHERE volume = ?1 AND path >= ?2 AND path < ?3 ORDER BY path, id")                          \
    X(HISTORY_FROM, SELECT, &index_table_history,                                                  \
      "WHERE volume = ?1 AND path >= ?2 ORDER BY path, id")                                        \
    X(HISTORY_OF_NODE, SELECT, &index_table_history,                                               \
      "WHERE node = ?1 AND node <> 0 ORDER BY id DESC")                                            \
    X(HISTORY_OF_VERSION, SELECT, &index_table_history,                                            \
      "WHERE version = ?1 AND version <> '' ORDER BY id DESC")                                     \
    X(HISTORY_OF_RUN, SELECT, &index_table_history,                                                \
      "WHERE gone_run = ?1 AND gone_run <> x'' ORDER BY id")                                       \
    X(HISTORY_EACH, SELECT, &index_table_history, "WHERE id > ?1 ORDER BY id")                     \
    X(HISTORY_USAGE, RAW, NULL,                                                                    \
      "SELECT count(*), coalesce(sum(size), 0) FROM history WHERE volume = ?1 AND state = 2")      \
    X(VOLUME_DELETE_HISTORY, DELETE, &index_table_history, "WHERE volume = ?1")                    \
    X(VOLUME_DELETE_CHANGES, DELETE, &index_table_changes, "WHERE volume = ?1")                    \
    X(CHANGE_INSERT, INSERT, &index_table_changes, "")                                             \
    X(CHANGE_OF_KEY, SELECT, &index_table_changes,                                                 \
      "WHERE key = ?1 AND key <> x'' ORDER BY id DESC")                                            \
    X(CHANGE_OF_RUN, SELECT, &index_table_changes, "WHERE run = ?1 AND run <> x'' ORDER BY id")    \
    X(CHANGE_NEWEST, SELECT, &index_table_changes, "ORDER BY id DESC")                             \
    X(SNAPSHOT_INSERT, INSERT, &index_table_snapshots, "")                                         \
    X(SNAPSHOT_UPDATE, UPDATE, &index_table_snapshots, "")                                         \
    X(SNAPSHOT_FIND, SELECT, &index_table_snapshots, "WHERE volume = ?1 AND name = ?2")            \
    X(SNAPSHOT_DELETE, DELETE, &index_table_snapshots, "WHERE id = ?1")                            \
    X(SNAPSHOT_EACH, SELECT, &index_table_snapshots, "ORDER BY at_ns, id")                         \
    X(SNAPSHOT_IS_BEHIND, RAW, NULL,                                                               \
      "SELECT CASE WHEN EXISTS (SELECT 1 FROM versions WHERE id > ?1 AND volume = ?2) THEN 1"      \
      " WHEN EXISTS (SELECT 1 FROM changes WHERE id > ?1 AND volume = ?2) THEN 1"                  \
      " WHEN EXISTS (SELECT 1 FROM nodes WHERE volume = ?2 AND ctime_ns > ?3) THEN 1"              \
      " ELSE EXISTS (SELECT 1 FROM keys WHERE volume = ?2 AND modified_ns > ?3) END")              \
    X(VOLUME_DELETE_SNAPSHOTS, DELETE, &index_table_snapshots, "WHERE volume = ?1")                \
    X(STALE_PUT, REPLACE, &index_table_stale, "")                                                  \
    X(STALE_GET, SELECT, &index_table_stale, "WHERE version = ?1")                                 \
    X(STALE_PRUNE, DELETE, &index_table_stale, "WHERE time_ns < ?1 AND volume = ?2")               \
    X(VOLUME_DELETE_STALE, DELETE, &index_table_stale, "WHERE volume = ?1")                        \
    X(RUN_GET, SELECT, &index_table_runs, "WHERE run = ?1")                                        \
    X(RUN_PUT, REPLACE, &index_table_runs, "")                                                     \
    X(RUN_PRUNE, DELETE, &index_table_runs, "WHERE since_ns < ?1")                                 \
    X(CHANGE_OLD, SELECT, &index_table_changes, "WHERE id > ?1 ORDER BY id")                       \
    X(CHANGE_DELETE, DELETE, &index_table_changes, "WHERE id = ?1")                                \
    X(CONFLICT_PUT, REPLACE, &index_table_conflicts, "")                                           \
    X(CONFLICT_GET, SELECT, &index_table_conflicts, "WHERE id = ?1")                               \
    X(CONFLICT_DELETE, DELETE, &index_table_conflicts, "WHERE id = ?1")                            \
    X(CONFLICT_EACH, SELECT, &index_table_conflicts, "ORDER BY time_ns, id")                       \
    X(ANSWER_DROP_ALL, DELETE, &index_table_answers, "")                                           \
    X(ANSWER_DROP, DELETE, &index_table_answers, "WHERE connection = ?1")                          \
    X(ANSWER_DROP_OTHERS, DELETE, &index_table_answers,                                            \
      "WHERE connection = ?1 AND NOT (slot >= ?2 AND slot < ?3)")                                  \
    X(ANSWER_FORGET, DELETE, &index_table_answers, "WHERE connection = ?1 AND uniq = ?2")          \
    X(ANSWER_PUT, RAW, NULL,                                                                       \
      "INSERT OR REPLACE INTO answers(connection, slot, uniq, reply, crc) "                        \
      "VALUES (?1, ?2, ?3, ?4, ?5)")                                                               \
    X(ANSWER_GET, RAW, NULL,                                                                       \
      "SELECT reply, crc, slot FROM answers WHERE connection = ?1 AND uniq = ?2")                  \
    X(MOUNT_PUT, REPLACE, &index_table_mounts, "")                                                 \
    X(MOUNT_DELETE, DELETE, &index_table_mounts, "WHERE id = ?1")                                  \
    X(MOUNT_EACH, SELECT, &index_table_mounts, "ORDER BY id")                                      \
    X(TOKEN_INSERT, INSERT, &index_table_tokens, "")                                               \
    X(TOKEN_FIND, SELECT, &index_table_tokens, "WHERE hash = ?1")                                  \
    X(TOKEN_GET, SELECT, &index_table_tokens, "WHERE id = ?1")                                     \
    X(TOKEN_EACH, SELECT, &index_table_tokens, "ORDER BY id")                                      \
    X(TOKEN_DELETE, DELETE, &index_table_tokens, "WHERE id = ?1")                                  \
    X(TOKEN_DELETE_EXPIRED, DELETE, &index_table_tokens,                                           \
      "WHERE expires_ns <> 0 AND expires_ns < ?1")                                                 \
    X(VOLUME_DELETE_TOKENS, DELETE, &index_table_tokens, "WHERE volume = ?1")                      \
    X(SESSION_INSERT, INSERT, &index_table_sessions, "")                                           \
    X(SHARE_PUT, REPLACE, &index_table_shares, "")                                                 \
    X(SHARE_FIND, SELECT, &index_table_shares, "WHERE hash = ?1")                                  \
    X(SHARE_GET, SELECT, &index_table_shares, "WHERE id = ?1")                                     \
    X(SHARE_EACH, SELECT, &index_table_shares, "ORDER BY id")                                      \
    X(SHARE_DELETE, DELETE, &index_table_shares, "WHERE id = ?1")                                  \
    X(SESSION_GET, SELECT, &index_table_sessions, "WHERE hash = ?1")                               \
    X(SESSION_DELETE, DELETE, &index_table_sessions, "WHERE hash = ?1")                            \
    X(SESSION_DELETE_EXPIRED, DELETE, &index_table_sessions, "WHERE expires_ns < ?1")

enum index_statement {
#define X(name, form, table, text) STATEMENT_##name,
    INDEX_STATEMENTS(X)
#undef X
        STATEMENT_COUNT
};

/* One SQLite connection with its prepared statements. Used by one thread at a time. */
struct index_conn {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    struct index *index;
    bool busy;                     /* readers: inside index_read() */
    struct index_conn *next;       /* of the same index */
    struct index_conn **in_thread; /* readers: the slot of their thread (index_read.c) */
};

struct index_tx {
    struct index *index;
    struct index_conn *conn;
    bool writing;
    uint64_t sequence;   /* writing: the one this change will have */
    struct index_op *op; /* writing: the change itself */
    int64_t rest_ns;     /* index_tx_rest() */
};

/* Rows of nodes that the running change has read or written: a folder is wanted again and again. None outlives its change. */
#define INDEX_NODE_MEMO 4
struct index_node_memo {
    int64_t id[INDEX_NODE_MEMO]; /* 0: free */
    unsigned next;               /* the place that is given away next */
    struct index_node row[INDEX_NODE_MEMO];
};

/* A change waiting for the writer; lives on the caller's stack. */
struct index_op {
    index_fn *fn;
    void *arg;
    enum index_durability durability;
    struct err *err;
    int rc;
    bool leads;      /* it is this caller's turn to run the queue */
    bool done;       /* fn ran, or was refused */
    uint64_t commit; /* the number of the commit that it is part of */
    sem_t ready;
    struct index_op *next;
};

struct index_queue {
    pthread_mutex_t mutex;
    pthread_cond_t idle; /* nobody runs changes any more */
    struct index_op *first, **last;
    bool led; /* somebody runs changes, or was given the turn */
    bool stop;
};

/* Which commits are known to be on the disk (index_durable.c). */
struct index_durable {
    pthread_mutex_t mutex;
    pthread_cond_t done_more;
    _Atomic uint64_t committed; /* by the writer, so far */
    uint64_t done;              /* of these, on the disk */
    bool syncing;
    int fd; /* the WAL, -1: not opened yet */
};

struct index_checkpoint {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    unsigned pages; /* in the WAL after the last commit */
    bool wanted;
    bool stop;
    int64_t failed_ns; /* clock_mono_ns() of the last failure, 0: none */
};

struct index {
    char *path; /* of index.db */
    char vfs_name[40];
    sqlite3_vfs vfs;
    struct index_options options;
    struct index_conn writer, checkpointer;
    struct index_conn *readers;     /* registry (index_read.c) */
    struct index_counters counters; /* writer only; as they will be after the present transaction */
    bool checkpoint_started;
    pthread_t checkpoint_thread;
    /* The volume that was read last by a change: nearly each change wants it several times. */
    struct index_volume volume;
    bool volume_known;
    struct index_node_memo nodes; /* writer only */
    struct index_queue queue;
    struct index_durable durable;
    struct index_checkpoint checkpoint;
    pthread_rwlock_t life;
    /* INV-2: a sync of the database or its WAL failed. What the kernel dropped cannot be known, so no later commit may
     * count as kept: every change is refused until the index is opened anew. */
    atomic_bool broken;
    atomic_bool damage_logged;
    atomic_int
        disk_errno; /* of the last write or sync that failed: SQLite has lost it by the time it tells */
};

/* index_vfs.c: SQLite's file layer with a checksum on each page, one more try with the reserve freed when the disk is full,
 * and a memory for failed syncs. */
int index_vfs_register(struct index *index, struct err *err) MUST_CHECK;
void index_vfs_unregister(struct index *index);

/* index_schema.c */
int index_schema_migrate(struct index *index, int from, int dir_fd, struct err *err) MUST_CHECK;

/* index_statement.c: connections, statements, rows */
enum index_role { INDEX_WRITER, INDEX_READER, INDEX_CHECKPOINTER };
int index_conn_open(struct index *index, enum index_role role, struct index_conn *conn,
                    struct err *err) MUST_CHECK;
void index_conn_close(struct index_conn *conn);
int index_conn_exec(struct index_conn *conn, const char *sql, struct err *err) MUST_CHECK;
int index_conn_int(struct index_conn *conn, const char *sql, int64_t *out,
                   struct err *err) MUST_CHECK;
/* Runs a statement without parameters and rows; the SQLite code comes back. */
int index_conn_run(struct index_conn *conn, enum index_statement id);
/* err from the SQLite code `rc`; answers -1. `what`: "read the index", "change the index". */
int index_fail(struct index_conn *conn, int rc, const char *what, struct err *err);

struct index_query {
    sqlite3_stmt *stmt;
    struct index_conn *conn;
    bool own; /* the cached statement was busy (a callback asks again): finalized at the end */
};
void index_query_end(struct index_query *query);
#define scope_query scope(index_query_end) struct index_query
int index_query_start(struct index_tx *tx, enum index_statement id, struct index_query *query,
                      struct err *err) MUST_CHECK;
/* A change: ERR_INTERNAL in a read transaction. */
int index_change_start(struct index_tx *tx, enum index_statement id, struct index_query *query,
                       struct err *err) MUST_CHECK;
/* 1: a row, 0: no more, -1. */
int index_query_step(struct index_query *query, struct err *err) MUST_CHECK;
/* The same, and the row is read and its checksum tested. */
int index_query_row(struct index_query *query, const struct index_table *table, void *row,
                    struct err *err) MUST_CHECK;
void index_bind_int(struct index_query *query, int at, int64_t value);
void index_bind_text(struct index_query *query, int at, const char *text);
void index_bind_bytes(struct index_query *query, int at, const void *data, size_t len);
/* Binds all columns of `row` and runs an INSERT, REPLACE or UPDATE; *changes (may be NULL): rows touched. */
int index_row_write(struct index_tx *tx, enum index_statement id, const struct index_table *table,
                    const void *row, int *changes, struct err *err) MUST_CHECK;
/* Runs a change with one integer parameter; *changes may be NULL. */
int index_run_int(struct index_tx *tx, enum index_statement id, int64_t value, int *changes,
                  struct err *err) MUST_CHECK;
int64_t index_counter_next(struct index_tx *tx, enum index_counter counter);
/* index_node.c: no row is known any more. */
void index_node_memo_clear(struct index *index);

/* index_durable.c: blocks until the commit of that number is on the disk. */
void index_durable_init(struct index_durable *durable);
void index_durable_release(struct index_durable *durable);
int index_durable_wait(struct index *index, uint64_t commit, struct err *err) MUST_CHECK;

/* index_write.c, index_read.c, index_checkpoint.c */
int index_check_broken(const struct index *index, struct err *err) MUST_CHECK;
void index_writer_stop(struct index *index);
void index_readers_close(struct index *index);
int index_checkpoint_start(struct index *index, struct err *err) MUST_CHECK;
void index_checkpoint_stop(struct index *index);

#endif
