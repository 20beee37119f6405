"""Slots of the chat templates besides the topics: lengths, requests, occasions, follow-ups."""

from __future__ import annotations

from adaptivespec.train.data.questions.grammar import Slot, entries
from adaptivespec.train.data.questions.topics import TOPICS
from adaptivespec.train.data.questions.words import CLASSES

SLOTS: dict[str, Slot] = {
    **TOPICS,
    "day": entries("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "len": (
        "",
        "",
        "",
        "",
        "",
        "",
        "§ Answer in one sentence.",
        "§ Answer in two sentences.",
        "§ [Keep it|Be] short.",
        "§ Use about [50|80|100|150|200] words.",
        "§ Write [one paragraph|two paragraphs|three paragraphs].",
        "§ Use [three|four|five] bullet points.",
        "§ [Go into detail.|Give a detailed answer.]",
        "§ [Give|Add|Include] [an example|two examples].",
        "§ Use simple [words|language].",
        "§ [Explain|Write] it for {audience}.",
        "§ Number your points.",
        "§ Use headings.",
        "§ Answer as a table.",
        "§ End with a [question|summary|joke].",
        "§ No more than {3-9} sentences.",
        "§ Write at least {3-6} paragraphs.",
        "§ Do not use [jargon|lists|the word 'very'].",
        "§ Start with the most important point.",
    ),
    "wlen": (
        "",
        "",
        "",
        "",
        "",
        "§ Use about [50|80|100|150|200] words.",
        "§ Write [two|three|four] paragraphs.",
        "§ No more than {4-9} sentences.",
        "§ [Keep it|Make it] [short|funny|serious|simple].",
        "§ [End|Finish] with a [question|surprise|joke].",
        "§ Write for {audience}.",
        "§ Add a title.",
        "§ Use [vivid|simple|formal|old-fashioned] language.",
        "§ Mention {theme}.",
        "§ Begin with a question.",
    ),
    "size": (
        "",
        "",
        " in one sentence",
        " in two sentences",
        " in [three|four] sentences",
        " in a short paragraph",
        " in [three|five] bullet points",
        " in about [50|100|150] words",
        " in simple words",
        " in detail",
        " step by step",
        " with an example",
        " to {audience}",
        " as if to {audience}",
    ),
    "why": entries(
        """leaves change colour in autumn; the sky is blue; ice floats; cats purr; we dream;
        onions make us cry; bread rises; the sea is salty; metal feels colder than wood; stars
        twinkle; we yawn; dogs wag their tails; airplanes can fly; popcorn pops; soap cleans;
        mirrors swap left and right; some people are left-handed; birds sing in the morning;
        cheese has holes; honey does not spoil; prices end in 99; planes leave white trails;
        music gives us goosebumps; the days are shorter in winter; spicy food feels hot; we
        forget names"""
    ),
    "counter": entries(
        """everyone could read minds; the moon disappeared; nobody needed sleep; plants could
        talk; the internet stopped for a week; people lived for three hundred years; money had
        never been invented; the Earth turned twice as fast; animals could vote; all cars were
        banned tomorrow; it rained every day for a year; gravity were half as strong;
        computers had been invented in 1800; everyone spoke the same language; bees vanished"""
    ),
    "greeting": entries("Hi,; Hello,; Hey there,; Good morning,; Good evening,; Hi there,"),
    "made": entries(
        "short story; poem; song lyric; fable; diary entry; letter; dialogue; monologue; haiku; "
        "scene"
    ),
    "dish": entries(
        """vegetable soup; apple pie; chickpea curry; pancakes; pasta with mushrooms; fried rice;
        a Greek salad; banana bread; lentil stew; tacos; an omelette; roasted vegetables;
        oatmeal cookies; pizza; hummus"""
    ),
    "request": entries(
        """a day off next {day}; a refund for {gadget}; help with {event}; a later deadline; a
        letter of recommendation; an invoice; a quote for painting two rooms; a meeting next
        week; news about my application; permission to work from home; a discount for {5-40}
        people; the minutes of {day}'s meeting"""
    ),
    "news": entries(
        """the office is closed on {day}; {event} is moved to {day}; I cannot come to {event};
        the price will rise by {2-15} percent; we have a new colleague, a {job}; the lift is
        out of order; we won a prize; the delivery is {2-9} days late; I accept the job as a
        {job}; our shop moves to {city}; the water is turned off on {day}"""
    ),
}
NESTED: dict[str, Slot] = {
    "mood_in": (
        "in a {mood} mood", "to someone who has never seen it", "with all five senses", "{size}",
    ),
    "asked": entries(
        """what do you think of {issue}?; how do I start {daily}?; why is it that {why}?; who
        needs {tech}?; what is the best thing about {city}?; what did you do on {day}?; how
        would you explain {subject}?; what is your favourite {food}?; do you believe in
        {idea}?; can you tell me about {theme}?; what would you change about {issue}?"""
    ),
    "lead": entries(
        """I am a {job} from {city}[ and have little time|].; This is for {event}.; I am
        preparing {event} for my {reader}.; You are an expert [on {subject}|who writes
        clearly].; My friend, a {job}, asked me this.; Imagine you are talking to {audience}.;
        I have {3-20} minutes before {event}.; I write a newsletter for {reader}.; {greeting}
        I have a request.; I am learning English, so use easy words.; We have a class of
        {8-30} [children|adults|teenagers].; I have a question for you.; This is for my
        homework.; I want to understand this better.; My child asked me this at breakfast.; I
        am writing a [report|school essay|speech|column].; Please be honest and precise.; My
        {reader} will read your answer.; I know little about this.; Take your time."""
    ),
    "food": ("dish", "place", "season", "song", "memory", "animal"),
    "news_said": (
        "'Where can I get {gadget}?'", "'I need {request}.'", "'How do I {goal}?'",
        "'I read that {news}. Is that right?'", "'Nothing works today.'",
        "'I was told that {news}, and I am angry.'",
    ),
    "word": (*CLASSES["words"], *entries(
        """stubborn; wander; whisper; fragile; bright; ancient; gather; clumsy; generous;
        hesitate; curious; gloomy; remarkable; borrow; vivid; patient; reluctant; celebrate;
        tiny; brave; complain; rapid; humble; explore; odd"""
    )),
}  # fmt: skip
ALL_SLOTS: dict[str, Slot] = SLOTS | NESTED
FOLLOW_UPS = entries(
    """Now make it shorter.; Give an example.; Explain the second point in more detail.; Rewrite
    it in a {tone} tone.; Can you say that in [one sentence|simpler words]?; Now write it for
    {audience}.; What is the most important part?; Turn your answer into [bullet points|a
    table|a poem|a dialogue].; Translate your answer into {language}.; Add [a title|a
    conclusion|two more points|a joke].; Why is that?; What would a critic say about this?;
    Are you sure? Check your answer once more.; And what about {subject}?; How does this apply
    to [a {job}|children|{country}]?; Start again with a different approach.; Which parts of
    your answer are uncertain?; Thanks! What should I ask next?; Continue.; Make it more
    [vivid|formal|personal|precise|surprising].; Summarise what you said in {10-30} words.;
    Give me [two|three] alternatives.; What is the opposite view?"""
)
