#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/fault/server/server.h"

/* Habits of whole stores, set at the start. */

static const struct {
    const char *name;
    enum role role;
} roles[] = {
    { "no-conditions", ROLE_NO_CONDITIONS },
    { "weak-copy", ROLE_WEAK_COPY },
    { "one-write", ROLE_ONE_WRITE },
    { "nfc", ROLE_NFC },
    { "lying-list", ROLE_LYING_LIST },
    { "equal-parts", ROLE_EQUAL_PARTS },
    { "not-implemented", ROLE_NOT_IMPLEMENTED },
};
#define ROLE_COUNT (sizeof(roles) / sizeof(roles[0]))
static atomic_uint active;

bool
roles_set(const char *names)
{
    unsigned found = 0;
    while (*names) {
        size_t len = strcspn(names, ",");
        size_t i = 0;
        while (i < ROLE_COUNT &&
               (strlen(roles[i].name) != len || strncmp(roles[i].name, names, len) != 0))
            i++;
        if (i == ROLE_COUNT)
            return false;
        found |= roles[i].role;
        names += len + (names[len] == ',');
    }
    atomic_store(&active, found);
    return true;
}

void
roles_names(char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < ROLE_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", roles[i].name);
}

bool
roles_has(enum role role)
{
    return (atomic_load(&active) & role) != 0;
}

bool
roles_ignore_conditions(const char *op)
{
    if (roles_has(ROLE_NO_CONDITIONS))
        return true;
    return roles_has(ROLE_WEAK_COPY) &&
           (strcmp(op, "COPY") == 0 || strcmp(op, "PARTCOPY") == 0 || strcmp(op, "DELETE") == 0);
}

/* ---- NFC ---- */

/*
 * Letters whose composed form is in Latin-1 Supplement and Latin Extended-A, by combining mark: from UnicodeData.txt of
 * Unicode 15, field 5 (canonical decompositions). UTF-8 base letter and composed letter, one after the other.
 */
static const struct {
    const char *mark;
    const char *pairs;
} compositions[] = {
    { "\u0300", "AÀEÈIÌOÒUÙaàeèiìoòuùNǸnǹ" },
    { "\u0301", "AÁEÉIÍOÓUÚYÝaáeéiíoóuúyýCĆcćLĹlĺNŃnńRŔrŕSŚsśZŹzźGǴgǵαάεέηήιίοόυύωώ" },
    { "\u0302", "AÂEÊIÎOÔUÛaâeêiîoôuûCĈcĉGĜgĝHĤhĥJĴjĵSŜsŝWŴwŵYŶyŷ" },
    { "\u0303", "AÃNÑOÕaãnñoõIĨiĩUŨuũ" },
    { "\u0304", "AĀaāEĒeēIĪiīOŌoōUŪuū" },
    { "\u0306", "AĂaăEĔeĕGĞgğIĬiĭOŎoŏUŬuŭИЙий" },
    { "\u0307", "CĊcċEĖeėGĠgġIİZŻzż" },
    { "\u0308", "AÄEËIÏOÖUÜaäeëiïoöuüyÿYŸЕЁеё" },
    { "\u030a", "AÅaåUŮuů" },
    { "\u030b", "OŐoőUŰuű" },
    { "\u030c", "CČcčDĎdďEĚeěNŇnňRŘrřSŠsšTŤtťZŽzžAǍaǎ" },
    { "\u0327", "CÇcçSŞsşTŢtţGĢKĶkķLĻlļNŅnņRŖrŗ" },
    { "\u0328", "AĄaąEĘeęIĮiįUŲuų" },
};

static size_t
char_len(const char *text)
{
    unsigned char c = (unsigned char)*text;
    size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return strnlen(text, len);
}

/* The letter that `base` and `mark` make together, or NULL. */
static const char *
composed(const char *base, size_t base_len, const char *mark, size_t mark_len)
{
    for (size_t i = 0; i < sizeof(compositions) / sizeof(compositions[0]); i++) {
        if (strlen(compositions[i].mark) != mark_len ||
            memcmp(compositions[i].mark, mark, mark_len) != 0)
            continue;
        for (const char *p = compositions[i].pairs; *p;) {
            size_t len = char_len(p);
            if (len == base_len && memcmp(p, base, len) == 0)
                return p + len;
            p += len;
            p += char_len(p);
        }
    }
    return NULL;
}

static unsigned
code_point(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    return char_len(text) == 3 ? (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u) : 0;
}

/* Unicode 15, section 3.12: L and V, or LV and T; 0 when they do not join. */
static unsigned
hangul(unsigned a, unsigned b)
{
    if (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176)
        return 0xac00 + ((a - 0x1100) * 21 + (b - 0x1161)) * 28;
    if (a >= 0xac00 && a < 0xd7a4 && (a - 0xac00) % 28 == 0 && b > 0x11a7 && b < 0x11c3)
        return a + (b - 0x11a7);
    return 0;
}

/* Joins the last character of `out` (at `last`) with the next one of the text; false when they do not. */
static bool
join(char *out, size_t last, size_t *used, const char *next, size_t len)
{
    const char *letter = composed(out + last, *used - last, next, len);
    unsigned syllable = 0;
    if (letter) {
        size_t letter_len = char_len(letter);
        memcpy(out + last, letter, letter_len);
        *used = last + letter_len;
        return true;
    }
    out[*used] = '\0';
    syllable = hangul(code_point(out + last), code_point(next));
    if (!syllable)
        return false;
    out[last] = (char)(0xe0 | syllable >> 12);
    out[last + 1] = (char)(0x80 | (syllable >> 6 & 63));
    out[last + 2] = (char)(0x80 | (syllable & 63));
    *used = last + 3;
    return true;
}

void
roles_fold(char *key, size_t size)
{
    char out[1200];
    size_t used = 0;
    size_t last = 0;
    if (!roles_has(ROLE_NFC) || strlen(key) >= size || size > sizeof(out) - 8)
        return;
    for (const char *p = key; *p;) {
        size_t len = char_len(p);
        if (used == 0 || !join(out, last, &used, p, len)) {
            last = used;
            memcpy(out + used, p, len);
            used += len;
        }
        p += len;
    }
    out[used] = '\0';
    memcpy(key, out, used + 1); /* composing never makes it longer */
}

/* ---- one write per second ---- */

#define SLOTS 8192 /* keys that share one: the later write counts */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the table */
static struct slot {
    uint64_t key;
    int64_t at_ns;
} slots[SLOTS];

/* FNV-1a. */
static uint64_t
key_hash(const char *key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
    return hash;
}

bool
roles_may_write(const char *key, unsigned interval_ms)
{
    if (!roles_has(ROLE_ONE_WRITE))
        return true;
    uint64_t hash = key_hash(key);
    int64_t now = clock_mono_ns();
    pthread_mutex_lock(&lock);
    struct slot *slot = &slots[hash % SLOTS];
    bool may = slot->key != hash || now - slot->at_ns >= interval_ms * NS_PER_MS;
    if (may)
        *slot = (struct slot){ hash, now };
    pthread_mutex_unlock(&lock);
    return may;
}

void
roles_clear(void)
{
    pthread_mutex_lock(&lock);
    memset(slots, 0, sizeof(slots));
    pthread_mutex_unlock(&lock);
}
