# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scheduler in virtual time: random jobs, pools and clocks. No page is lost, and nobody waits longer than schedule.py says."""

import random

import pytest

from easyquant.runtime.schedule import Job, Scheduler


class VirtualPlace:
    """Counts pages, and keeps beginnings that it may be asked to give up."""

    def __init__(self, pages, page_tokens):
        self.pages = self.free = pages
        self.page_tokens, self.kept, self.held, self.aside = page_tokens, 0, {}, 0

    def free_pages(self):
        return self.free

    def evict(self):
        if self.kept == 0:
            return False
        self.kept, self.free = self.kept - 1, self.free + 1
        return True

    def shared_tokens(self, job):
        return 0

    def start(self, job):
        assert job not in self.held
        self.held[job] = 0
        self.grow(job, job.saved)

    def set_aside(self, job):
        assert not job.is_done
        job.saved, self.aside = job.held, self.aside + 1
        self.leave(job)

    def grow(self, job, tokens):
        job.held += tokens
        pages = -(-job.held // self.page_tokens)
        self.free -= pages - self.held[job]
        self.held[job] = pages
        assert self.free >= 0, "a page that nobody has"

    def leave(self, job):
        self.free += self.held.pop(job)
        job.held = 0


def run(seed):
    """One schedule; how often a job stepped back."""
    choice = random.Random(seed)
    page = choice.choice([1, 4, 16])
    place = VirtualPlace(choice.randint(2, 12), page)
    scheduler = Scheduler(place, choice.randint(1, 4), page, choice.choice([page, 2 * page]), choice.choice([0.0, 0.01, 1.0]))
    coming, steps, now, owed = [], 0, 0.0, {}
    room = place.pages * page
    for number in range(choice.randint(1, 6)):
        prompt = choice.randint(1, max(1, room // 2))
        job = Job(number, arrival := choice.choice([0.0, 0.0, choice.uniform(0, 3)]), prompt, choice.choice([0, 0, 0, -1, 1]))
        job.arrival, job.prompt, job.new, job.saved = arrival, prompt, choice.randint(1, max(1, min(room - prompt, 12))), 0
        coming.append(job)
    coming.sort(key=lambda job: job.arrival)
    jobs = tuple(coming)
    while coming or scheduler.waiting or scheduler.running:
        while coming and (coming[0].arrival <= now or not (scheduler.waiting or scheduler.running)):
            job = coming.pop(0)
            now = max(now, job.arrival)
            scheduler.add(job)
            job.since = steps
        items = scheduler.plan()
        assert items and len(items) <= scheduler.sequences and place.free + sum(place.held.values()) + place.kept == place.pages
        assert set(place.held) == set(scheduler.running) and max(job.order for job in scheduler.running) < min((job.order for job in scheduler.waiting), default=(9e9,))
        first = min((job for job in (*scheduler.running, *scheduler.waiting)), key=lambda job: job.order)
        assert any(job is first for job, _ in items), "the first of all goes on in each step"
        seconds = 0.001 * sum(count for _, count in items) * choice.uniform(0.5, 2)
        scheduler.measured(items, seconds)
        now, steps = now + seconds, steps + 1
        for job, count in items:
            assert 1 <= count <= scheduler.piece and count <= job.unread
            place.grow(job, count)
            if job.unread == 0:
                job.new -= 1
                if job.new == 0 or choice.random() < 0.02:
                    job.is_done, job.until = True, steps
                    scheduler.remove(job)
                    place.leave(job)
                    if place.free and choice.random() < 0.5:
                        place.kept, place.free = place.kept + 1, place.free - 1
                else:
                    job.tokens += 1
        if choice.random() < 0.01 and (scheduler.waiting or scheduler.running):  # who is cancelled leaves from wherever it is
            job = choice.choice([*scheduler.waiting, *scheduler.running])
            scheduler.remove(job)
            if job in place.held:
                place.leave(job)
            job.is_done, job.until = True, steps
    assert place.free + place.kept == place.pages and not place.held
    for job in jobs:
        # Steps that each job takes at most: pieces, which begin at multiples, and then a token a step.
        before = [-(-other.prompt // scheduler.piece) + 12 for other in jobs if other.order <= job.order]
        assert job.until - job.since <= sum(before), "somebody waited too long"
    return place.aside


def check(seeds):
    aside = sum(run(seed) for seed in seeds)
    assert aside > len(seeds) / 50  # pages do run out


def test_random_schedules():
    check(range(10_000))


@pytest.mark.slow
def test_a_hundred_thousand_random_schedules():
    check(range(10**5))


def job(number, tokens, **options):
    return Job(number, 0.0, tokens, **options)


class Endless(VirtualPlace):
    def __init__(self):
        super().__init__(10**6, 64)


def started(scheduler, *jobs):
    for own in jobs:
        own.saved = 0
        scheduler.add(own)
    return scheduler.plan()


def test_a_prompt_is_read_in_pieces_beside_those_that_go_on():
    scheduler = Scheduler(place := Endless(), 4, 64)
    one, long = job(0, 1), job(1, 1000)
    assert started(scheduler, one, long) == [(one, 1), (long, 64)]
    place.grow(long, 64)
    assert scheduler.plan() == [(one, 1), (long, 64)]
    place.grow(long, 10)  # pieces end where pages do, wherever they began
    assert scheduler.plan() == [(one, 1), (long, 54)]


def test_as_many_pieces_as_the_time_allows():
    scheduler = Scheduler(Endless(), 8, 64, step_seconds=0.05)
    jobs = [job(number, 500) for number in range(6)]
    assert started(scheduler, *jobs) == [(jobs[0], 64)]  # nothing is known of the time yet
    scheduler.measured([(jobs[0], 64)], 0.016)
    assert [own for own, _ in scheduler.plan()] == jobs[:3]
    scheduler.measured([(jobs[0], 1)], 0.04)  # without a prompt
    assert [own for own, _ in scheduler.plan()] == jobs[:1]


def test_priorities_are_worth_waiting():
    scheduler = Scheduler(Endless(), 1, 64)
    late, urgent, old = Job(2, 5.0, 3), Job(1, 5.0, 3, priority=1), Job(0, -6.0, 3)
    assert started(scheduler, late, urgent, old) == [(old, 3)]
    assert scheduler.waiting == [urgent, late]
    sooner = Job(3, 6.0, 3, priority=2)
    sooner.saved = 0
    scheduler.add(sooner)
    assert scheduler.plan() == [(sooner, 3)] and scheduler.waiting == [old, urgent, late]


def test_deadlines():
    scheduler = Scheduler(Endless(), 1, 64)
    one, two, three = job(0, 3, deadline=2.0), job(1, 3, deadline=1.0), job(2, 3)
    started(scheduler, one, two, three)
    assert scheduler.expired(0.5) == [] and scheduler.expired(1.0) == [two] and scheduler.expired(3.0) == [one, two]
