#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/ulid.h"
#include "versioning/index_impl.h"

/*
 * The tables, and the steps from each format to the next. docs/format/index-schema.md describes them column by column.
 * Names, keys and paths are BLOBs: any bytes, compared bytewise. Each table ends in the row's crc32c.
 */
static const char schema_1[] =
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT, "
    "WITHOUT ROWID;"
    "CREATE TABLE counters (id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL,"
    "  volume INTEGER NOT NULL, node INTEGER NOT NULL, content INTEGER NOT NULL, version INTEGER "
    "NOT NULL,"
    "  mount INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE TABLE volumes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, prefix BLOB NOT NULL,"
    "  read_only INTEGER NOT NULL, sync_close INTEGER NOT NULL, quota INTEGER NOT NULL,"
    "  history_ns INTEGER NOT NULL, created_ns INTEGER NOT NULL, root INTEGER NOT NULL,"
    "  storage_class TEXT NOT NULL, encryption TEXT NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT;"
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, volume INTEGER NOT NULL, parent INTEGER NOT NULL,"
    "  name BLOB NOT NULL, kind INTEGER NOT NULL, flags INTEGER NOT NULL, mode INTEGER NOT NULL,"
    "  uid INTEGER NOT NULL, gid INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT "
    "NULL,"
    "  size INTEGER NOT NULL, ulid TEXT NOT NULL, content INTEGER NOT NULL, version TEXT NOT NULL,"
    "  etag TEXT NOT NULL, key BLOB NOT NULL, listed_ns INTEGER NOT NULL, target BLOB NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX nodes_name ON nodes (parent, name) WHERE parent <> 0;"
    "CREATE INDEX nodes_parent ON nodes (parent);"
    /* Kept by the database itself, so that it cannot drift: df asks often, and summing a large tree takes long. */
    "CREATE TABLE usage (volume INTEGER PRIMARY KEY, files INTEGER NOT NULL, bytes INTEGER NOT "
    "NULL) STRICT;"
    "CREATE TRIGGER usage_add AFTER INSERT ON nodes WHEN new.kind = 1 AND new.parent <> 0 BEGIN"
    "  INSERT INTO usage VALUES (new.volume, 1, new.size) ON CONFLICT DO UPDATE SET"
    "    files = files + 1, bytes = bytes + new.size; END;"
    "CREATE TRIGGER usage_drop AFTER DELETE ON nodes WHEN old.kind = 1 AND old.parent <> 0 BEGIN"
    "  UPDATE usage SET files = files - 1, bytes = bytes - old.size WHERE volume = old.volume; END;"
    "CREATE TRIGGER usage_change AFTER UPDATE ON nodes WHEN old.size <> new.size OR old.kind <> "
    "new.kind"
    "  OR old.volume <> new.volume OR (old.parent = 0) <> (new.parent = 0) BEGIN"
    "  UPDATE usage SET files = files - (old.kind = 1 AND old.parent <> 0),"
    "    bytes = bytes - iif(old.kind = 1 AND old.parent <> 0, old.size, 0) WHERE volume = "
    "old.volume;"
    "  INSERT INTO usage VALUES (new.volume, new.kind = 1 AND new.parent <> 0,"
    "    iif(new.kind = 1 AND new.parent <> 0, new.size, 0)) ON CONFLICT DO UPDATE SET"
    "    files = files + excluded.files, bytes = bytes + excluded.bytes; END;"
    "CREATE TABLE extras (node INTEGER PRIMARY KEY, text BLOB NOT NULL, crc INTEGER NOT NULL) "
    "STRICT;"
    "CREATE TRIGGER extras_drop AFTER DELETE ON nodes BEGIN"
    "  DELETE FROM extras WHERE node = old.id; END;"
    "CREATE TABLE keys (key BLOB PRIMARY KEY, volume INTEGER NOT NULL, etag TEXT NOT NULL,"
    "  version TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, owner INTEGER NOT NULL,"
    "  discard INTEGER NOT NULL, sequence INTEGER NOT NULL, modified_ns INTEGER NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT, WITHOUT "
    "ROWID;"
    "CREATE TABLE contents (id INTEGER PRIMARY KEY, node INTEGER NOT NULL, volume INTEGER NOT NULL,"
    "  state INTEGER NOT NULL, flags INTEGER NOT NULL, version TEXT NOT NULL, base_version TEXT "
    "NOT NULL,"
    "  base_etag TEXT NOT NULL, etag TEXT NOT NULL, size INTEGER NOT NULL, sha256 TEXT NOT NULL,"
    "  md5 TEXT NOT NULL, boot_id TEXT NOT NULL, mtime_ns INTEGER NOT NULL, actor BLOB NOT NULL,"
    "  run BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE INDEX contents_node ON contents (node);"
    "CREATE INDEX contents_unsynced ON contents (volume, state, size) WHERE state <> 1;"
    "CREATE TABLE intents (key BLOB PRIMARY KEY, volume INTEGER NOT NULL, not_before_ns INTEGER "
    "NOT NULL,"
    "  tries INTEGER NOT NULL, last_error BLOB NOT NULL, since_ns INTEGER NOT NULL,"
    "  attempt_op INTEGER NOT NULL, attempt_unknown INTEGER NOT NULL, attempt_node INTEGER NOT "
    "NULL,"
    "  attempt_content INTEGER NOT NULL, attempt_version TEXT NOT NULL, attempt_size INTEGER NOT "
    "NULL,"
    "  attempt_md5 TEXT NOT NULL, attempt_sha256 TEXT NOT NULL, attempt_cond_absent INTEGER NOT "
    "NULL,"
    "  attempt_cond_etag TEXT NOT NULL, look_again_until_ns INTEGER NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX intents_due ON intents (not_before_ns);"
    "CREATE INDEX intents_volume ON intents (volume);"
    "CREATE TABLE versions (id INTEGER PRIMARY KEY, volume INTEGER NOT NULL, node INTEGER NOT NULL,"
    "  version TEXT NOT NULL, base_version TEXT NOT NULL, etag TEXT NOT NULL, sha256 TEXT NOT NULL,"
    "  size INTEGER NOT NULL, path BLOB NOT NULL, actor BLOB NOT NULL, run BLOB NOT NULL,"
    "  op TEXT NOT NULL, time_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE INDEX versions_node ON versions (node);"
    "CREATE TABLE conflicts (id TEXT PRIMARY KEY, volume INTEGER NOT NULL, node INTEGER NOT NULL,"
    "  path BLOB NOT NULL, reason TEXT NOT NULL, base_version TEXT NOT NULL, mine_version TEXT NOT "
    "NULL,"
    "  theirs_version TEXT NOT NULL, theirs_etag TEXT NOT NULL, content INTEGER NOT NULL,"
    "  synced INTEGER NOT NULL, actor BLOB NOT NULL, run BLOB NOT NULL, time_ns INTEGER NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE opens (connection INTEGER NOT NULL, fh INTEGER NOT NULL, node INTEGER NOT NULL,"
    "  writable INTEGER NOT NULL, error INTEGER NOT NULL, crc INTEGER NOT NULL,"
    "  PRIMARY KEY (connection, fh)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE answers (connection INTEGER NOT NULL, slot INTEGER NOT NULL, uniq INTEGER NOT "
    "NULL,"
    "  reply BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (connection, slot)) STRICT, WITHOUT "
    "ROWID;"
    "CREATE TABLE mounts (id INTEGER PRIMARY KEY, volume INTEGER NOT NULL, folder BLOB NOT NULL,"
    "  path BLOB NOT NULL, read_only INTEGER NOT NULL, run BLOB NOT NULL, lease_ns INTEGER NOT "
    "NULL,"
    "  expires_ns INTEGER NOT NULL, uuid_hint INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;";

static const char schema_2[] =
    "CREATE TABLE uploads (id BLOB PRIMARY KEY, key BLOB NOT NULL, volume INTEGER NOT NULL,"
    "  life TEXT NOT NULL, begun_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX uploads_key ON uploads (key);";

static const char schema_3[] =
    "CREATE TABLE xattrs (node INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL) "
    "STRICT;"
    "CREATE TRIGGER xattrs_drop AFTER DELETE ON nodes BEGIN"
    "  DELETE FROM xattrs WHERE node = old.id; END;";

static const char schema_4[] = "ALTER TABLE nodes ADD COLUMN atime_ns INTEGER NOT NULL DEFAULT 0;";

static const char schema_5[] =
    "CREATE TABLE links (node INTEGER PRIMARY KEY, inode INTEGER NOT NULL, version TEXT NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT;"
    "CREATE INDEX links_inode ON links (inode, node);"
    "CREATE TRIGGER links_drop AFTER DELETE ON nodes WHEN (old.flags & 64) <> 0 BEGIN"
    "  DELETE FROM links WHERE node = old.id; END;";

static const char schema_6[] = "DROP TABLE opens;";

/* Work items of moved folders (volume/move.c): a program of format 6 would take one for a key with nothing to do and drop it. */
static const char schema_7[] = "CREATE INDEX nodes_folders ON nodes (parent) WHERE kind = 2;";

/* Copies of versions that are no longer the present ones, and what was done to names. A program of format 7 would replace and delete
 * without keeping anything. */
static const char schema_8[] =
    "ALTER TABLE keys ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE volumes ADD COLUMN history_count INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE history (id TEXT PRIMARY KEY, volume INTEGER NOT NULL, node INTEGER NOT NULL,"
    "  state INTEGER NOT NULL, version TEXT NOT NULL, base_version TEXT NOT NULL,"
    "  source_etag TEXT NOT NULL, etag TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL,"
    "  path BLOB NOT NULL, actor BLOB NOT NULL, run BLOB NOT NULL, made_ns INTEGER NOT NULL,"
    "  gone_ns INTEGER NOT NULL, gone_op TEXT NOT NULL, gone_actor BLOB NOT NULL,"
    "  gone_run BLOB NOT NULL, mode INTEGER NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,"
    "  mtime_ns INTEGER NOT NULL, content INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT, "
    "WITHOUT ROWID;"
    "CREATE INDEX history_path ON history (volume, path, id);"
    "CREATE INDEX history_node ON history (node, id) WHERE node <> 0;"
    "CREATE INDEX history_version ON history (version) WHERE version <> '';"
    "CREATE INDEX history_run ON history (gone_run) WHERE gone_run <> x'';"
    "CREATE INDEX versions_version ON versions (version);"
    "CREATE INDEX versions_run ON versions (run) WHERE run <> x'';"
    "CREATE TABLE changes (id INTEGER PRIMARY KEY, volume INTEGER NOT NULL, node INTEGER NOT NULL,"
    "  parent INTEGER NOT NULL, op TEXT NOT NULL, path BLOB NOT NULL, to_path BLOB NOT NULL,"
    "  key BLOB NOT NULL, version TEXT NOT NULL, mode INTEGER NOT NULL, actor BLOB NOT NULL,"
    "  run BLOB NOT NULL, time_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE INDEX changes_key ON changes (key) WHERE key <> x'';"
    "CREATE INDEX changes_run ON changes (run) WHERE run <> x'';"
    "CREATE TABLE snapshots (id INTEGER PRIMARY KEY, volume INTEGER NOT NULL, name TEXT NOT NULL,"
    "  at_ns INTEGER NOT NULL, state INTEGER NOT NULL, files INTEGER NOT NULL,"
    "  bytes INTEGER NOT NULL, etag TEXT NOT NULL, actor BLOB NOT NULL, run BLOB NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX snapshots_name ON snapshots (volume, name);";

static const char schema_9[] = "ALTER TABLE volumes ADD COLUMN options INTEGER NOT NULL DEFAULT 0;";

/* A program of format 9 would write without a mark. */
static const char schema_10[] =
    "CREATE TABLE stale_reads (version TEXT PRIMARY KEY, volume INTEGER NOT NULL, run BLOB NOT "
    "NULL,"
    "  changed INTEGER NOT NULL, incomplete INTEGER NOT NULL, inputs BLOB NOT NULL,"
    "  time_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE runs (run BLOB PRIMARY KEY, since_ns INTEGER NOT NULL, crc INTEGER NOT NULL) "
    "STRICT, WITHOUT ROWID;";

/* Who may ask: tokens with a limited scope, and sessions of the owner's browser. Only hashes of the secrets are kept. */
static const char schema_11[] =
    "CREATE TABLE tokens (id TEXT PRIMARY KEY, hash TEXT NOT NULL, volume INTEGER NOT NULL,"
    "  folder BLOB NOT NULL, verbs INTEGER NOT NULL, run TEXT NOT NULL, label BLOB NOT NULL,"
    "  created_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT, "
    "WITHOUT ROWID;"
    "CREATE UNIQUE INDEX tokens_hash ON tokens (hash);"
    "CREATE TABLE sessions (hash TEXT PRIMARY KEY, created_ns INTEGER NOT NULL,"
    "  expires_ns INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/* What was shared. A volume that is forgotten leaves its rows until their copies are gone from the bucket. */
static const char schema_12[] =
    "CREATE TABLE shares (id TEXT PRIMARY KEY, hash TEXT NOT NULL, volume INTEGER NOT NULL,"
    "  path BLOB NOT NULL, key BLOB NOT NULL, name BLOB NOT NULL, size INTEGER NOT NULL,"
    "  hits INTEGER NOT NULL, most INTEGER NOT NULL, flags INTEGER NOT NULL, actor BLOB NOT NULL,"
    "  run BLOB NOT NULL, created_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL,"
    "  crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX shares_hash ON shares (hash);";

/* Step i leads from format i to i + 1. */
static const char *const steps[INDEX_FORMAT] = { schema_1, schema_2,  schema_3,  schema_4,
                                                 schema_5, schema_6,  schema_7,  schema_8,
                                                 schema_9, schema_10, schema_11, schema_12 };

/* What a new index starts with. */
static int
first_rows(struct index *index, struct err *err)
{
    char uuid[ULID_SIZE];
    struct index_tx tx = { .index = index, .conn = &index->writer, .writing = true };
    index->counters = (struct index_counters){ .id = 1 };
    if (ulid_new(uuid, err) != 0 || index_meta_set(&tx, "uuid", uuid, err) != 0)
        return -1;
    return index_row_write(&tx, STATEMENT_COUNTERS_PUT, &index_table_counters, &index->counters,
                           NULL, err);
}

static int
run_steps(struct index *index, int from, struct err *err)
{
    char pragma[96];
    for (int i = from; i < INDEX_FORMAT; i++) {
        if (index_conn_exec(&index->writer, steps[i], err) != 0)
            return -1;
    }
    if (from == 0 && first_rows(index, err) != 0)
        return -1;
    if (snprintf(pragma, sizeof(pragma), "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                 INDEX_APPLICATION_ID, INDEX_FORMAT) < 0)
        return err_set(err, ERR_INTERNAL, "cannot print");
    return index_conn_exec(&index->writer, pragma, err);
}

/* `index.db` → `index.db.format-N`, complete and on disk before the first change. */
static int
keep_old(struct index *index, int from, int dir_fd, struct err *err)
{
    char name[64];
    struct stat st;
    if (index_conn_exec(&index->writer, "PRAGMA wal_checkpoint(TRUNCATE);", err) != 0)
        return -1;
    if (snprintf(name, sizeof(name), "index.db.format-%d", from) < 0)
        return err_set(err, ERR_INTERNAL, "cannot print");
    scope_fd int old = sys->openat(dir_fd, "index.db", O_RDONLY, 0);
    if (old < 0 || fstat(old, &st) != 0)
        return err_sys(err, errno, "cannot read the index");
    scope_fd int copy = sys->openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (copy < 0)
        return err_sys(err, errno, "cannot make '%s'", name);
    if (sys_copy_range(old, 0, copy, 0, (uint64_t)st.st_size, err) != 0)
        return err_wrap(err, "cannot copy the index before changing its format");
    if (sys->fdatasync(copy) != 0 || sys->fsync(dir_fd) != 0)
        return err_sys(err, errno, "cannot keep '%s'", name);
    return 0;
}

/* Format 1 had fewer columns while it was young, and their rows' checksums do not cover the later ones: no step leads from there
 * to here. Said before anything is changed. */
static int
check_youth(struct index *index, int from, struct err *err)
{
    static const char later[] =
        "SELECT storage_class, encryption FROM volumes LIMIT 0;"
        "SELECT modified_ns FROM keys LIMIT 0; SELECT node FROM extras LIMIT 0;";
    struct err ignored = ERR_INIT;
    if (from != 1 || index_conn_exec(&index->writer, later, &ignored) == 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "the state directory is of an early development version, which this one cannot "
                   "take over: let that version bring everything to the bucket (holdfast flush "
                   "--wait), then give a fresh --state");
}

int
index_schema_migrate(struct index *index, int from, int dir_fd, struct err *err)
{
    struct index_conn *conn = &index->writer;
    if (from == INDEX_FORMAT)
        return 0;
    if (check_youth(index, from, err) != 0)
        return -1;
    if (from > 0 && keep_old(index, from, dir_fd, err) != 0)
        return -1;
    if (index_conn_exec(conn, "PRAGMA synchronous = FULL; BEGIN IMMEDIATE;", err) != 0)
        return -1;
    if (run_steps(index, from, err) != 0 || index_conn_exec(conn, "COMMIT;", err) != 0) {
        if (sqlite3_get_autocommit(conn->db) == 0)
            (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
        return err_wrap(err, from == 0 ? "cannot make the index"
                                       : "cannot bring the index to a new format");
    }
    /* The format number goes into the database file itself, where an older program looks first. */
    if (index_conn_exec(conn, "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA synchronous = NORMAL;",
                        err) != 0)
        return -1;
    if (sys->fsync(dir_fd) != 0)
        return err_sys(err, errno, "cannot keep the index");
    return 0;
}
