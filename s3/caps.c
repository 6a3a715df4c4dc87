#include "base/buf.h"
#include "base/limits.h"
#include "s3/store.h"

/* One capability, and what its absence means for the user and asks of him; "note: " where there is nothing to worry about. */
struct cap_row {
    size_t at; /* offset of the enum in struct store_caps */
    enum store_yes_no good;
    const char *missing;
    const char *not_probed;
    bool parts; /* says nothing about a store that takes files of any size whole */
};

#define CAP(field) offsetof(struct store_caps, field)
static const struct cap_row rows[] = {
    { .at = CAP(put_if_absent),
      .good = STORE_YES,
      .missing = "degraded: no conditional creation (If-None-Match): if something outside Holdfast "
                 "makes the same new file at the same moment, one of the two is lost unseen; let "
                 "only one gateway write here, or use a store with conditional writes",
      "conditional creation (If-None-Match) was not proven" },
    { .at = CAP(put_if_match),
      .good = STORE_YES,
      .missing = "degraded: no conditional replacement (If-Match): a change from outside in the "
                 "moment between look and write is overwritten unseen; let only one gateway write "
                 "here, or use a store with conditional writes",
      "conditional replacement (If-Match) was not proven" },
    { .at = CAP(put_atomic),
      .good = STORE_YES,
      .missing = "degraded: of several creates of one file at the same moment more than one may "
                 "succeed, and the last one stays; let only one gateway write here",
      "that exactly one of parallel conditional writes succeeds was not proven" },
    { .at = CAP(delete_if_match),
      .good = STORE_YES,
      .missing = "deletes: degraded: the store ignores their condition: Holdfast looks just before "
                 "it deletes, but a change from outside in that moment goes with the file",
      "conditional deletion was not proven" },
    { .at = CAP(copy_source_if_match),
      .good = STORE_YES,
      .missing = "note: copies ignore the condition on their source: Holdfast compares each copy "
                 "afterwards; nothing to do",
      "conditions on the source of a copy were not proven" },
    { .at = CAP(copy_dest_conditions),
      .good = STORE_YES,
      .missing = "note: copies overwrite what is there: Holdfast copies only to names that nobody "
                 "else uses; nothing to do",
      "conditions on the destination of a copy were not proven" },
    { .at = CAP(server_side_copy),
      .good = STORE_YES,
      .missing = "the store cannot copy by itself: renames and old versions go through this "
                 "machine, and cost time and traffic",
      "copies inside the store were not proven" },
    { .at = CAP(list_consistent),
      .good = STORE_YES,
      .missing = "degraded: listings lag behind: files that others add or delete in the bucket may "
                 "show up, or go, late; what Holdfast writes itself is seen at once. Let only one "
                 "gateway write here",
      "that listings show changes at once was not proven" },
    { .at = CAP(presign),
      .good = STORE_YES,
      .missing = "note: no presigned URLs: links are served by the gateway itself",
      "presigned URLs were not proven" },
    { .at = CAP(folds_names),
      .good = STORE_NO,
      .missing = "names are composed here (Unicode NFC): a name whose accents are characters of "
                 "their own would come back as another one, or replace a file, so it is refused; "
                 "use the composed form",
      "whether accents in names stay as they are was not proven" },
    { .at = CAP(any_bytes),
      .good = STORE_YES,
      .missing = "names that are not UTF-8 are not kept here: such files are refused; rename them",
      "whether names that are not UTF-8 are kept was not proven" },
    { .at = CAP(long_meta),
      .good = STORE_YES,
      .missing = "long metadata is not kept here: a symlink whose target, or an attribute whose "
                 "value, is longer than 256 bytes is refused; keep them shorter",
      .not_probed = "whether long metadata is kept was not proven" },
    { .at = CAP(multipart),
      .good = STORE_YES,
      .missing = "no uploads in parts: a file is sent in one piece and must be smaller than 5 GiB; "
                 "a break starts it anew",
      "uploads in parts were not proven",
      .parts = true },
    { .at = CAP(complete_if_absent),
      .good = STORE_YES,
      .missing =
          "note: uploads in parts ignore conditions for new files: Holdfast sends files whole up "
          "to the store's limit (about 5 GiB), and looks before and after larger ones",
      "conditions of uploads in parts for new files were not proven",
      .parts = true },
    { .at = CAP(complete_if_match),
      .good = STORE_YES,
      .missing =
          "note: uploads in parts ignore conditions for changed files: Holdfast sends files whole "
          "up to the store's limit (about 5 GiB), and looks before and after larger ones",
      "conditions of uploads in parts for changed files were not proven",
      .parts = true },
    { .at = CAP(copy_parts),
      .good = STORE_YES,
      .missing = "the store cannot copy files beyond 5 GiB by itself: they go through this machine",
      "copies in parts were not proven",
      .parts = true },
    { .at = CAP(copy_parts_decodes_twice),
      .good = STORE_NO,
      .missing = "note: copies in parts take a percent sign in the source's name for an escape: "
                 "Holdfast escapes such names twice; nothing to do",
      "whether copies in parts read the source's name as it is was not proven" },
    { .at = CAP(delete_many),
      .good = STORE_YES,
      .missing = "note: no batch deletes: clearing away takes one request for each object",
      "batch deletes were not proven" },
    { .at = CAP(list_uploads),
      .good = STORE_YES,
      .missing =
          "unfinished uploads cannot be listed: what a crash leaves is cleared only where Holdfast "
          "remembers it; let the bucket's lifecycle rules abort uploads after some days",
      "lists of unfinished uploads were not proven",
      .parts = true },
};

static enum store_yes_no
value_of(const struct store_caps *caps, const struct cap_row *row)
{
    return *(const enum store_yes_no *)((const char *)caps + row->at);
}

int
store_caps_explain(const struct store_caps *caps, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum store_yes_no value = value_of(caps, &rows[i]);
        const char *text = value == STORE_NOT_PROBED ? rows[i].not_probed : rows[i].missing;
        if (rows[i].parts && caps->max_put_bytes >= LIMIT_FILE_SIZE)
            continue;
        if (value != rows[i].good && buf_appendf(out, err, "%s\n", text) < 0)
            return -1;
    }
    if (caps->min_write_interval_ns > 0 &&
        buf_appendf(out, err,
                    "note: one write per file in %lld ms: files that change more often are "
                    "uploaded less often; nothing to do\n",
                    (long long)(caps->min_write_interval_ns / 1000000)) < 0)
        return -1;
    return 0;
}
